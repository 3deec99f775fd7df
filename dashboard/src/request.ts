/** The call that led to a step, as a request of the chat API: to read, to copy, to send again. No key is ever in it. */

import type { Schemas } from "./api/client";
import { visible } from "./format";

type Step = Schemas["Step"];
type Message = Schemas["Message"];
type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

/** The body, as far as the step holds it: media are named by digest, as the pool keeps them. */
export function bodyOf(step: Step): { [name: string]: Json } {
  const sampling = Object.fromEntries(Object.entries((step.sampling ?? {}) as { [name: string]: Json }).filter(([, value]) => value !== null && !(Array.isArray(value) && value.length === 0)));
  if (sampling.n === 1) delete sampling.n;
  return {
    model: step.requested_model ?? step.model ?? "",
    messages: (step.prompt_messages ?? []).map(messageOf),
    ...((step.tools ?? []).length > 0 ? { tools: step.tools as Json } : {}),
    ...sampling,
    ...(step.response_logprobs != null ? { logprobs: true } : {}),
  };
}

function messageOf(message: Message): Json {
  const { content, reasoning, tool_calls, ...rest } = message;
  const said: { [name: string]: Json } = Object.fromEntries(Object.entries(rest).filter(([, value]) => value != null)) as { [name: string]: Json };
  said.content = typeof content === "string" || content == null ? (content ?? null) : content.map(partOf);
  if (reasoning != null) said.reasoning_content = reasoning;
  if ((tool_calls ?? []).length > 0) said.tool_calls = tool_calls as unknown as Json;
  return said;
}

type Part = Exclude<NonNullable<Message["content"]>, string>[number];

const partOf = (part: Part): Json =>
  "text" in part ? { type: "text", text: part.text } : { type: "image_url", image_url: { url: `agentworld-media:${part.digest}` } };

/** JSON in which nothing is hidden: what cannot be seen is escaped, so that what is pasted is what was read. */
export const jsonOf = (value: Json, indent = 1): string => visible(JSON.stringify(value, null, indent));

/** A command for a POSIX shell. */
export function curlOf(step: Step, origin: string): string {
  const body = jsonOf(bodyOf(step)).replaceAll("'", "'\\''");
  return [
    `curl ${shell(`${origin}/v1/chat/completions`)} \\`,
    "  -H 'content-type: application/json' \\",
    '  -H "authorization: Bearer $AGENTWORLD_API_KEY" \\',
    `  --data-raw '${body}'`,
  ].join("\n");
}

/** A first call to a server at `address`, which asks for a key or not, as a command for a POSIX shell. */
export function firstCallOf(address: string, model: string, keyed: boolean): string {
  const body = jsonOf({ model, messages: [{ role: "user", content: "Hello" }] }, 0);
  return [
    `curl ${shell(`${address}/v1/chat/completions`)} \\`,
    "  -H 'content-type: application/json' \\",
    ...(keyed ? ['  -H "authorization: Bearer $AGENTWORLD_API_KEY" \\'] : []),
    `  --data-raw ${shell(body)}`,
  ].join("\n");
}

const shell = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

/** A script for the client library of OpenAI. */
export function pythonOf(step: Step, origin: string): string {
  const { model, messages, tools, ...rest } = bodyOf(step);
  const theirs = new Set(["temperature", "top_p", "max_tokens", "stop", "seed", "n", "presence_penalty", "frequency_penalty", "logit_bias", "tool_choice", "parallel_tool_calls", "response_format", "logprobs"]);
  const known = Object.entries(rest).filter(([name]) => theirs.has(name));
  const others = Object.fromEntries(Object.entries(rest).filter(([name]) => !theirs.has(name)));
  return [
    "import os",
    "",
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url=${literal(`${origin}/v1`)}, api_key=os.environ.get("AGENTWORLD_API_KEY", "none"))`,
    "reply = client.chat.completions.create(",
    `    model=${literal(model!)},`,
    `    messages=${literal(messages!, 1)},`,
    ...(tools === undefined ? [] : [`    tools=${literal(tools, 1)},`]),
    ...known.map(([name, value]) => `    ${name}=${literal(value, 1)},`),
    ...(Object.keys(others).length === 0 ? [] : [`    extra_body=${literal(others, 1)},`]),
    ")",
    "print(reply.choices[0].message)",
  ].join("\n");
}

/** A value as Python writes it. Strings of JSON are strings of Python too, but for surrogates that are written out. */
export function literal(value: Json, depth = 0): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return visible(JSON.stringify(value));
  const inner = "    ".repeat(depth + 1);
  const end = "    ".repeat(depth);
  if (Array.isArray(value)) return value.length === 0 ? "[]" : `[\n${value.map((each) => `${inner}${literal(each, depth + 1)},\n`).join("")}${end}]`;
  const entries = Object.entries(value);
  return entries.length === 0 ? "{}" : `{\n${entries.map(([name, each]) => `${inner}${literal(name)}: ${literal(each, depth + 1)},\n`).join("")}${end}}`;
}
