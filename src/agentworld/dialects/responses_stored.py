"""OpenAI Responses: a stored step -> the response that its call got."""

from __future__ import annotations

from typing import Any

import msgspec

from agentworld.dialects.exchange import RUNS, Choice, Reply, Request, Run
from agentworld.dialects.responses import DIALECT, NOTES, PREFIX
from agentworld.dialects.responses_entries import ENTRIES, unpacked
from agentworld.dialects.responses_reply import response_body
from agentworld.dialects.responses_tools import Named
from agentworld.records import Sampling, Step, Tool


def is_response(step: Step) -> bool:
    """Whether the step is of this API, and its reply ended."""
    return step.dialect == DIALECT and step.response_message is not None and step.finish_reason not in (None, "abort")


def stored_runs(step: Step) -> tuple[Run, ...]:
    """In which order the reply's text and thinking came; see Choice."""
    return msgspec.convert(step.metadata.get(RUNS) or (), tuple[Run, ...])


def stored_entries(step: Step) -> list[dict[str, Any]] | None:
    """The log-probabilities that the caller asked for; None where it did not."""
    kept = (step.metadata.get(NOTES) or {}).get(ENTRIES)
    return None if kept is None else unpacked(kept)


def stored_body(step: Step, entries: list[dict[str, Any]] | None = None) -> dict[str, Any] | None:
    """The body; None for what is no response. Tools are shown as the model saw them, under the names that the caller
    gave. `entries`: log-probabilities to show.
    """
    if not is_response(step) or step.response_message is None or step.finish_reason is None:
        return None
    notes: dict[str, Any] = step.metadata.get(NOTES) or {}
    named: Named = notes.get("named") or {}
    sampling = step.sampling or Sampling()
    prompt = step.prompt_messages or []
    reply = Reply(
        reply_id=f"{PREFIX}{step.exchange_id}",
        model=step.model or "",
        created=int(step.created_at),
        choices=[
            Choice(
                index=0,
                message=step.response_message,
                finish_reason=step.finish_reason,
                entries=entries,
                runs=stored_runs(step),
            )
        ],
        usage=step.usage,
    )
    echo = {
        "instructions": prompt[0].text if notes.get("instructions") and prompt else None,
        "metadata": notes.get("metadata") or {},
        "parallel_tool_calls": sampling.parallel_tool_calls is not False,
        "previous_response_id": notes.get("previous"),
        "reasoning": {"effort": notes.get("effort"), "summary": notes.get("summary")},
        "store": notes.get("store", True),
        "text": {"format": _shape(sampling.response_format)},
        "tool_choice": _choice(sampling.tool_choice, named),
        "tools": [_tool(tool, named) for tool in step.tools or []],
    }
    request = Request(
        dialect=DIALECT,
        model=step.requested_model or "",
        messages=(),
        sampling=sampling,
        logprobs=entries is not None,
        echo=echo,
        notes={NOTES: notes},
    )
    return response_body(request, reply)


def _shape(shape: dict[str, Any] | None) -> dict[str, Any]:
    if shape is None:
        return {"type": "text"}
    return {"type": shape["type"], **(shape.get("json_schema") or {})}


def _choice(choice: Any, named: Named) -> Any:
    if not isinstance(choice, dict):
        return choice or "auto"
    name = choice["function"]["name"]
    kind, namespace, own = named.get(name, ["function", "", name])
    return {"type": kind, "name": own, **({"namespace": namespace} if namespace else {})}


def _tool(tool: Tool, named: Named) -> dict[str, Any]:
    function = tool["function"]
    kind, namespace, name = named.get(function["name"], ["function", "", function["name"]])
    about = {"description": function["description"]} if "description" in function else {}
    if kind == "custom":
        shown = {"type": "custom", "name": name, **about}
    else:
        shown = {"type": "function", **function, "name": name, "strict": bool(function.get("strict"))}
    if not namespace:
        return shown
    return {"type": "namespace", "name": namespace, "description": "", "tools": [shown]}
