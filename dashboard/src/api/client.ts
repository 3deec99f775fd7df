/** Calls of the control API. The browser sends the cookie of the sign-in by itself; no key is ever held here. */

import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Page<T> = { items: T[]; next_cursor: string | null; scanned?: number | null };
export type SignedIn = Schemas["SignedIn"];

/** What the server says is wrong: what, where, what to do. `status` 0: it was not reached. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly path: string | null = null,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

type Query = Record<string, string | number | null | undefined>;

/** One call; `body` is sent as JSON. Rejects with an ApiError, or as `signal` was aborted. */
export async function call<T>(
  method: "GET" | "POST" | "PUT" | "DELETE",
  path: string,
  { query = {}, body, signal }: { query?: Query; body?: unknown; signal?: AbortSignal } = {},
): Promise<T> {
  let response: Response;
  try {
    response = await fetch(addressOf(path, query), {
      method,
      signal: signal ?? null,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": "application/json" }) },
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server does not answer", null, "It is tried again by itself");
  }
  const text = await response.text();
  if (!response.ok) throw errorOf(response.status, text);
  return (text === "" ? null : JSON.parse(text)) as T;
}

export const get = <T>(path: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  call<T>("GET", path, { ...(query ? { query } : {}), ...(signal ? { signal } : {}) });

/** The address of a path of the API, parts of it encoded, without what is not asked for. */
export function addressOf(path: string, query: Query = {}): string {
  const asked = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") asked.set(name, String(value));
  }
  const said = asked.toString();
  return `/api/v1/${path}${said === "" ? "" : `?${said}`}`;
}

/** The error in a reply, whatever stands in it: a proxy may have answered. */
export function errorOf(status: number, text: string): ApiError {
  try {
    const { error } = JSON.parse(text);
    if (typeof error?.message === "string") {
      return new ApiError(status, String(error.code), error.message, error.path ?? null, error.hint ?? null);
    }
  } catch {
    // No JSON: the status is all there is.
  }
  return new ApiError(status, "unreadable", `The server answered with status ${status}`);
}
