"""LangGraph as an agent of `agentworld run`: a graph of model and tools, the tools over HTTP, the answer out."""

import json
import sys
import urllib.request

from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import tools_condition

TASK = json.load(sys.stdin)
SAMPLING = {name: value for name, value in TASK["sampling"].items() if name in ("temperature", "top_p", "max_tokens")}


def act(name, arguments):
    """Run a tool in the task's environment; what it says."""
    body = json.dumps({"name": name, "arguments": json.dumps(arguments)}).encode()
    request = urllib.request.Request(TASK["environment_url"] + "/step", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["content"]


model = ChatOpenAI(model=TASK["model"], **SAMPLING).bind_tools(TASK["tools"])


def ask(state):
    return {"messages": [model.invoke(state["messages"])]}


def use_tools(state):
    calls = state["messages"][-1].tool_calls
    return {"messages": [ToolMessage(act(each["name"], each["args"]), tool_call_id=each["id"]) for each in calls]}


graph = StateGraph(MessagesState)
graph.add_node("model", ask)
graph.add_node("tools", use_tools)
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
found = graph.compile().invoke({"messages": TASK["messages"]}, {"recursion_limit": 2 * TASK["max_turns"] + 1})
print(found["messages"][-1].text)
