import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { call } from "../api/client";
import { needs, useScopes } from "../api/scopes";
import { decimal, visible } from "../format";
import { Problem } from "./problem";

/** Gives a trajectory a reward by hand; of one name the one that was given last is in force. */
export function RewardForm({ id }: { id: string }) {
  const may = useScopes();
  const client = useQueryClient();
  const [open, setOpen] = useState(false);
  const [value, setValue] = useState("1");
  const [name, setName] = useState("reward");
  const send = useMutation({
    mutationFn: async () => {
      const reward = { trajectory_id: id, name: name.trim(), value: Number(value), source: "dashboard" };
      await call("POST", "rewards", { body: reward });
      return reward;
    },
    onSuccess: async () => {
      setOpen(false);
      await client.invalidateQueries({ queryKey: ["trajectory", id] });
      await client.invalidateQueries({ queryKey: ["live"] });
    },
  });
  if (!may.write) return may.known ? <p className="quiet">{needs("write", "Giving a reward")}</p> : null;
  const wrong = name.trim() === "" || value.trim() === "" || !Number.isFinite(Number(value));
  return (
    <section aria-label="Reward">
      <div className="bar">
        <button type="button" aria-expanded={open} onClick={() => setOpen(!open)}>
          Reward
        </button>
        <span role="status" className="quiet">
          {send.isSuccess && `Given: ${visible(send.data.name)} ${decimal(send.data.value)}`}
        </span>
      </div>
      {open && (
        <form
          className="feedback-form"
          onSubmit={(event) => {
            event.preventDefault();
            if (!wrong) send.mutate();
          }}
        >
          <label>
            Reward, a number <input value={value} autoFocus inputMode="decimal" onChange={(event) => setValue(event.target.value)} />
          </label>
          <label>
            Under the name <input value={name} onChange={(event) => setName(event.target.value)} />
          </label>
          <button disabled={wrong || send.isPending}>Give it</button>
          <span className="quiet">The name reward is the primary one; it takes the place of an earlier one of its name.</span>
        </form>
      )}
      {send.isError && <Problem error={send.error} />}
    </section>
  );
}
