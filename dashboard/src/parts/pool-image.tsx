import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { addressOf, errorOf } from "../api/client";
import { bytes, visible } from "../format";

/** Types that a browser draws and never runs; SVG is a document with scripts. */
const DRAWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MOST_BYTES = 20_000_000;

/** A medium of the pool: a picture where it is one, else what it is. */
export function PoolImage({ digest, type }: { digest: string; type: string }) {
  const drawn = DRAWN.has(type);
  const blob = useQuery({
    queryKey: ["media", digest],
    enabled: drawn,
    staleTime: Infinity,
    gcTime: 60_000,
    queryFn: async ({ signal }) => {
      const response = await fetch(addressOf(`media/${encodeURIComponent(digest)}`), { signal });
      if (!response.ok) throw errorOf(response.status, await response.text());
      if (Number(response.headers.get("content-length") ?? 0) > MOST_BYTES) return null;
      // With the type that was allowed above: what the sender called it is not asked again.
      return new Blob([await response.arrayBuffer()], { type });
    },
  });
  const [address, setAddress] = useState<string | null>(null);
  useEffect(() => {
    if (blob.data == null) return;
    const made = URL.createObjectURL(blob.data);
    setAddress(made);
    return () => URL.revokeObjectURL(made);
  }, [blob.data]);
  const named = `${visible(type)} ${digest.slice(0, 12)}`;
  if (!drawn) return <p className="quiet">[{named}: not shown]</p>;
  if (blob.isError) return <p className="quiet">[{named}: {visible(blob.error.message)}]</p>;
  if (blob.data === null) return <p className="quiet">[{named}: over {bytes(MOST_BYTES)}]</p>;
  if (address === null) return <p className="quiet">[{named}]</p>;
  return <img className="pool-image" src={address} alt={`Image ${digest.slice(0, 12)} of the pool`} />;
}
