"""LangGraph: a streamed graph over Anthropic's API, and two nodes at once that share nothing but the question."""

import json
import operator
import sys
from typing import Annotated, TypedDict

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def look(place: str) -> str:
    """Looks."""
    return place + " is blue"


class Found(TypedDict):
    said: Annotated[list, operator.add]


def streamed():
    model = ChatAnthropic(model="policy", max_tokens=1000).bind_tools([look])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([look]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    asked = {"messages": [("system", "Be brief."), ("user", "What colour?")]}
    pieces = [piece for piece, _ in graph.compile().stream(asked, stream_mode="messages")]
    last = [piece.text for piece in pieces if piece.id == pieces[-1].id]
    return [len(last) > 2, "".join(last)]


def at_once():
    model = ChatOpenAI(model="policy")
    graph = StateGraph(Found)
    for name in ("left", "right"):
        graph.add_node(name, lambda _, name=name: {"said": [model.invoke(f"You are {name}.").text]})
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    return sorted(graph.compile().invoke({"said": []})["said"])


print(json.dumps({"streamed": streamed, "at once": at_once}[sys.argv[1]]()))
