import { expect, it } from "vitest";

import { bodyOf, curlOf, firstCallOf, jsonOf, literal, pythonOf } from "./request";

const HOSTILE = "it's \"$(touch /tmp/hit)\" `id` \\' \u202egnp.exe\u0007\n\u2028 😀 </script> '; rm -rf / #";
const step = {
  step_id: "s",
  trajectory_id: "t",
  model: "m",
  requested_model: HOSTILE,
  prompt_messages: [
    { role: "user", content: [{ type: "text", text: HOSTILE }, { type: "media", digest: "ab", media_type: "image/png" }] },
    { role: "assistant", content: null, reasoning: "so", tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", content: HOSTILE, tool_call_id: "c", tool_calls: [] },
  ],
  tools: [{ type: "function", function: { name: "f", parameters: { "it's": true } } }],
  sampling: { temperature: 0.5, top_k: 20, stop: [], n: 1, seed: null },
  response_logprobs: [-1],
} as never;

it("is the call as the chat API has it", () => {
  const body = bodyOf(step);
  expect(body).toMatchObject({ model: HOSTILE, temperature: 0.5, top_k: 20, logprobs: true });
  expect(Object.keys(body)).not.toContain("stop");
  expect(Object.keys(body)).not.toContain("n");
  expect(body.messages).toEqual([
    { role: "user", content: [{ type: "text", text: HOSTILE }, { type: "image_url", image_url: { url: "agentworld-media:ab" } }] },
    { role: "assistant", content: null, reasoning_content: "so", tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", content: HOSTILE, tool_call_id: "c" },
  ]);
});

it("a shell and Python read back what the step holds, and hold no key", async () => {
  // Types of Node.js are no part of the page, so the name is no literal here.
  const { execFileSync } = await import(String("node:child_process"));
  const curl = curlOf(step, "http://127.0.0.1:8400");
  // What `curl` would be given, one argument a line in JSON.
  const script = `curl() { node -e 'console.log(JSON.stringify(process.argv.slice(1)))' -- "$@"; }\nAGENTWORLD_API_KEY=\n${curl}`;
  const given = JSON.parse(execFileSync("sh", ["-c", script], { encoding: "utf8" })) as string[];
  expect(given[0]).toBe("http://127.0.0.1:8400/v1/chat/completions");
  expect(JSON.parse(given[given.length - 1]!)).toEqual(bodyOf(step));
  expect(curl).toContain("$AGENTWORLD_API_KEY");
  expect(pythonOf(step, "http://127.0.0.1:8400")).toContain('os.environ.get("AGENTWORLD_API_KEY"');
  expect(pythonOf(step, "http://127.0.0.1:8400")).toContain("extra_body");
  for (const said of [curl, pythonOf(step, "http://127.0.0.1:8400"), jsonOf(bodyOf(step))]) expect(said).not.toMatch(/[\u202e\u0007\u2028]/);
});

it("writes values as Python does", () => {
  expect(literal([null, true, false, 1.5, "a\n"])).toBe('[\n    None,\n    True,\n    False,\n    1.5,\n    "a\\n",\n]');
  expect(literal({})).toBe("{}");
  expect(literal({ a: [] }, 1)).toBe('{\n        "a": [],\n    }');
});

it("a first call names the model whatever it is called, and a key only where one is asked for", () => {
  expect(firstCallOf("http://h", "it's", false).split(" \\\n")).toEqual(["curl 'http://h/v1/chat/completions'", "  -H 'content-type: application/json'", `  --data-raw '{"model":"it'\\''s","messages":[{"role":"user","content":"Hello"}]}'`]);
  expect(firstCallOf("http://h", "m", true)).toContain('"authorization: Bearer $AGENTWORLD_API_KEY"');
});
