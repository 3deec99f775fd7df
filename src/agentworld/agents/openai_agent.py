"""A black-box agent: a process that uses the official `openai` package and knows only its base URL and its task.

    echo '{"prompt": "What is 2 + 2?"}' | OPENAI_BASE_URL=... python -m agentworld.agents.openai_agent
    python -m agentworld.agents.openai_agent --lines      # one JSON line in, one out, many at once

It imports nothing else of AgentWorld. The task gives `messages` (or `prompt`) and, for tools, `environment_url`:
GET {environment_url}/tools lists them, POST {environment_url}/step {"name", "arguments"} runs one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import openai

MAX_RETRIES = 12
LINE_LIMIT = 64 * 1024 * 1024


async def play(client: openai.AsyncOpenAI, task: dict[str, Any], environment_url: str | None) -> str:
    """Call the model and the tools it asks for until it answers; returns the answer."""
    messages: list[Any] = list(task.get("messages") or [{"role": "user", "content": task["prompt"]}])
    tools = task.get("tools") or []
    if environment_url and not tools:
        tools = (await _json(client, "GET", f"{environment_url}/tools"))["tools"]
    options: dict[str, Any] = {"tools": tools} if tools else {}
    # Sampling fields that the package has no name for (top_k, min_p) pass as they are.
    options["extra_body"] = task.get("sampling") or {}
    answer = ""
    for _ in range(int(task.get("max_turns", 8))):
        completion = await client.chat.completions.create(
            model=task.get("model", "default"), messages=messages, **options
        )
        message = completion.choices[0].message
        answer = message.content or ""
        messages.append(message.model_dump(exclude_none=True, exclude={"annotations", "audio", "refusal"}))
        if not message.tool_calls or not environment_url:
            break
        done = False
        for call in message.tool_calls:
            if call.type != "function":
                continue
            body = {"name": call.function.name, "arguments": call.function.arguments}
            observed = await _json(client, "POST", f"{environment_url}/step", body)
            done = done or bool(observed.get("done"))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": observed["content"]})
        if done:
            break
    return answer


async def _json(client: openai.AsyncOpenAI, method: str, url: str, body: Any = None) -> Any:
    """One call of the environment, over the connections that the openai client keeps; an action is never sent twice."""
    if method == "GET":
        return await client.get(url, cast_to=object)
    return await client.post(url, cast_to=object, body=body, options={"max_retries": 0})


async def once() -> int:
    """One task on stdin; the answer goes to stdout."""
    task = json.loads(sys.stdin.read() or os.environ.get("AGENTWORLD_TASK", "{}"))
    async with openai.AsyncOpenAI(max_retries=MAX_RETRIES) as client:
        print(await play(client, task, task.get("environment_url") or os.environ.get("AGENTWORLD_ENVIRONMENT_URL")))
    return 0


async def lines() -> int:
    """One task a line on stdin, with its `id`, `base_url` and `api_key`; {"id", "answer" or "error"} a line on stdout.

    {"id", "cancel": true} stops one. Ends with stdin.
    """
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=LINE_LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    running: dict[str, asyncio.Task[None]] = {}
    async with openai.AsyncOpenAI(api_key="unset", max_retries=MAX_RETRIES) as shared:

        async def one(task: dict[str, Any]) -> None:
            client = shared.with_options(base_url=task["base_url"], api_key=task["api_key"])
            try:
                result = {"id": task["id"], "answer": await play(client, task, task.get("environment_url"))}
            except asyncio.CancelledError:
                return
            except Exception as error:
                result = {"id": task["id"], "error": f"{type(error).__name__}: {error}"}
            finally:
                running.pop(task["id"], None)
            print(json.dumps(result), flush=True)

        while line := await stdin.readline():
            message = json.loads(line)
            if message.get("cancel"):
                if message["id"] in running:
                    running[message["id"]].cancel()
            else:
                running[message["id"]] = asyncio.create_task(one(message))
        for task in list(running.values()):
            task.cancel()
    return 0


def main() -> int:
    """Entry point; a fault is one line on stderr."""
    try:
        return asyncio.run(lines() if "--lines" in sys.argv[1:] else once())
    except KeyboardInterrupt:
        return 130
    except (openai.OpenAIError, KeyError, ValueError) as error:
        print(f"openai_agent: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
