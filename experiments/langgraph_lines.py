"""LangGraph as an agent that stays up: a task a line on stdin, a graph of model and tools for each, an answer a line.

As examples/agents/langgraph_agent.py, which is a process a rollout. Imports nothing of AgentWorld.
"""

import asyncio
import json
import sys

import httpx
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition


def graph_of(task, shared):
    """The graph of one task."""
    sampling = {
        name: task["sampling"][name] for name in ("temperature", "seed", "max_tokens") if name in task["sampling"]
    }
    model = ChatOpenAI(
        model=task["model"],
        base_url=task["base_url"],
        api_key=task["api_key"],
        http_async_client=shared,
        max_retries=4,
        **sampling,
    ).bind_tools(task["tools"])

    async def ask(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def use_tools(state):
        said = []
        for call in state["messages"][-1].tool_calls:
            body = {"name": call["name"], "arguments": json.dumps(call["args"])}
            reply = await shared.post(task["environment_url"] + "/step", json=body)
            said.append(ToolMessage(reply.json()["content"], tool_call_id=call["id"]))
        return {"messages": said}

    graph = StateGraph(MessagesState)
    graph.add_node("model", ask)
    graph.add_node("tools", use_tools)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


async def play(task, shared):
    """The last thing that the agent said; what goes over the limit of turns has no answer."""
    answer, limit = "", 2 * task["max_turns"]
    steps = 0
    async for state in graph_of(task, shared).astream(
        {"messages": task["messages"]}, {"recursion_limit": limit + 2}, stream_mode="values"
    ):
        last = state["messages"][-1]
        answer = last.text if last.type == "ai" else answer
        steps += 1
        if steps > limit:
            break
    return str(answer)


async def main():
    """Tasks from stdin until it ends."""
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=64 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    running = {}
    async with httpx.AsyncClient(timeout=120.0) as shared:

        async def one(task):
            try:
                result = {"id": task["id"], "answer": await play(task, shared)}
            except Exception as error:
                result = {"id": task["id"], "error": f"{type(error).__name__}: {error}"}
            finally:
                running.pop(task["id"], None)
            print(json.dumps(result), flush=True)

        while line := await stdin.readline():
            task = json.loads(line)
            if task.get("cancel"):
                if task["id"] in running:
                    running[task["id"]].cancel()
            else:
                running[task["id"]] = asyncio.create_task(one(task))
        for each in list(running.values()):
            each.cancel()


asyncio.run(main())
