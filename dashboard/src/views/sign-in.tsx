import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call, type SignedIn } from "../api/client";
import { Problem } from "../parts/problem";

/** A key is sent once, and forgotten; the cookie that comes back no script can read. */
export function SignIn() {
  const client = useQueryClient();
  const [key, setKey] = useState("");
  const signing = useMutation({
    mutationFn: () => call<SignedIn>("POST", "session", { body: { key: key.trim() } }),
    onSuccess: (who) => {
      setKey("");
      client.setQueryData(["session"], who);
    },
  });
  return (
    <main className="sign-in">
      <h1>AgentWorld</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          signing.mutate();
        }}
      >
        <label htmlFor="key">API key</label>
        <input
          id="key"
          type="password"
          autoComplete="off"
          required
          autoFocus
          value={key}
          onChange={(event) => setKey(event.target.value)}
        />
        <button disabled={signing.isPending}>Sign in</button>
      </form>
      {signing.isError && <Problem error={signing.error} />}
      <p className="quiet">
        <code>agentworld keys create</code> makes a key. One with the scope read shows everything and changes nothing.
      </p>
    </main>
  );
}
