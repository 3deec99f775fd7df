/** What the one who looks at the page may do, so that it offers nothing that would be refused. */

import { useQuery } from "@tanstack/react-query";

import { get, type SignedIn } from "./client";

export type May = { write: boolean; admin: boolean; says: string };

export function useMay(): May {
  const who = useQuery({ queryKey: ["session"], queryFn: ({ signal }) => get<SignedIn>("session", {}, signal) });
  const scopes: readonly string[] = who.data?.scopes ?? [];
  const admin = scopes.includes("admin");
  const write = admin || scopes.includes("write");
  return { write, admin, says: write ? "A key with the scope admin may delete" : "A key with the scope write may change this; this one reads" };
}
