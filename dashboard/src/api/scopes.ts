/** What the one who looks at the page may do beside reading: buttons that would be refused are not offered. */

import { useQuery } from "@tanstack/react-query";

import { get, type SignedIn } from "./client";

export type Scopes = { known: boolean; write: boolean; lease: boolean; admin: boolean; bound: boolean };

export function useScopes(): Scopes {
  const who = useQuery({ queryKey: ["session"], queryFn: ({ signal }) => get<SignedIn>("session", {}, signal) });
  const scopes: readonly string[] = who.data?.scopes ?? [];
  const admin = scopes.includes("admin");
  return {
    known: who.data !== undefined,
    admin,
    write: admin || scopes.includes("write"),
    lease: admin || scopes.includes("lease"),
    bound: who.data !== undefined && isBound(who.data),
  };
}

/** Whether somebody sees one channel or one trajectory alone. */
export const isBound = (who: SignedIn): boolean => who.channel != null || who.trajectory_id != null;

/** Why something cannot be done with this key. */
export const needs = (scope: "write" | "lease" | "admin", what: string): string => `${what} needs a key with the scope ${scope}; this one has not got it.`;
