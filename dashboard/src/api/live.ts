/** What happens in the pool, as it happens: one stream for the whole page, resumed where it broke off. */

import { useEffect, useRef, useSyncExternalStore } from "react";

import { addressOf, errorOf, type Schemas } from "./client";
import { FrameReader } from "./events";

export type PoolEvent = Schemas["Event"];
export type Connection = "connecting" | "live" | "lost" | "refused";
/** None at all: the stream has begun, and what happened before that may not have been heard of. */
type Listener = (events: PoolEvent[]) => void;

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 10_000;

class Live {
  state: Connection = "connecting";
  /** A key that is bound to a channel or a trajectory may not ask for the pool's last event. */
  bound = false;
  private last: number | null = null;
  /** Whether the views' questions and the stream go on from one another. */
  private joined = false;
  private listeners = new Set<Listener>();
  private watchers = new Set<() => void>();
  private running: AbortController | null = null;

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    if (this.running === null) void this.run((this.running = new AbortController()));
    return () => this.listeners.delete(listener);
  }

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  /** End the stream, as at a sign-out; the next listener begins it anew. */
  stop(): void {
    this.running?.abort();
    this.running = null;
    this.last = null;
    this.joined = false;
    this.become("connecting");
  }

  private become(state: Connection): void {
    if (this.state === state) return;
    this.state = state;
    for (const each of this.watchers) each();
  }

  private async run(running: AbortController): Promise<void> {
    let pause = FIRST_PAUSE;
    while (!running.signal.aborted) {
      try {
        await this.follow(running.signal, () => (pause = FIRST_PAUSE));
        if (!running.signal.aborted) this.become("lost");
      } catch (error) {
        if (running.signal.aborted) return;
        if (isRefusal(error)) {
          this.become("refused");
          this.running = null;
          return;
        }
        this.become("lost");
      }
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  private async follow(signal: AbortSignal, began: () => void): Promise<void> {
    // What is there already is asked for by the views; here only what comes after it counts.
    if (this.last === null && !this.bound) this.last = await lastEvent(signal);
    const fromNow = this.last === null;
    const headers = { accept: "text/event-stream", ...(fromNow ? {} : { "last-event-id": String(this.last) }) };
    const response = await fetch(addressOf("events", { from_now: fromNow ? "true" : null }), { signal, headers });
    if (!response.ok || response.body === null) throw errorOf(response.status, await response.text());
    this.become("live");
    began();
    // What happened between the views' questions and this they have not seen, and nobody tells it any more.
    if (fromNow || !this.joined) for (const each of this.listeners) each([]);
    this.joined = true;
    const reader = new FrameReader();
    const decoder = new TextDecoder();
    const body = response.body.getReader();
    for (;;) {
      const { done, value } = await body.read();
      if (done) return;
      const events = reader.read(decoder.decode(value, { stream: true })).map((each) => JSON.parse(each.data) as PoolEvent);
      if (events.length === 0) continue;
      this.last = events[events.length - 1]!.sequence;
      for (const each of this.listeners) each(events);
    }
  }
}

async function lastEvent(signal: AbortSignal): Promise<number> {
  const response = await fetch(addressOf("stats"), { signal, headers: { accept: "application/json" } });
  const text = await response.text();
  if (!response.ok) throw errorOf(response.status, text);
  return (JSON.parse(text) as Schemas["PoolStats"]).last_event;
}

function isRefusal(error: unknown): boolean {
  const status = (error as { status?: number }).status;
  return status === 401 || status === 403;
}

export const live = new Live();

/** Call `listener` with each portion of events while the component is there. */
export function useEvents(listener: Listener): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => live.listen((events) => latest.current(events)), []);
}

export function useConnection(): Connection {
  return useSyncExternalStore(live.watch, () => live.state);
}
