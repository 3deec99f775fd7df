"""What `agentworld doctor` finds out about models: engine, tokenizer, ids, tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from agentworld.cli.findings import Finding, bad
from agentworld.errors import AgentWorldError, InvalidRequestError

if TYPE_CHECKING:
    from agentworld.config import ModelSettings, ServeSettings
    from agentworld.dialects.exchange import Delta, Request
    from agentworld.engines.base import Capabilities, Engine
    from agentworld.gateway.models import ServedModel
    from agentworld.gateway.token_in import TokenIn

PROBE_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
PROBE_SECONDS = 60.0
# Words of several kinds, so that ids of one vocabulary hardly spell it in another.
PROBE_TEXT = "The quick brown fox jumps over 13 lazy dogs; naïve café, 你好, def f(x): return x ** 2"


def check_models(settings: ServeSettings) -> Iterator[Finding]:
    """Each model: whether its engine answers and serves it, and where the ids of its steps come from."""
    if not settings.models:
        yield Finding("info", "engine", "no model is named", "add --upstream URL --model NAME to check an engine")
    for model in settings.models:
        for address in model.addresses:
            yield from asyncio.run(check_address(msgspec.structs.replace(model, upstream=address, upstreams=())))


async def check_address(model: ModelSettings) -> list[Finding]:
    """The model at one address."""
    from agentworld.gateway.clock import MonotonicClock
    from agentworld.gateway.models import ServedModel
    from agentworld.gateway.upstreams import Upstreams

    upstreams = None
    subject = f"model {model.name}"
    try:
        upstreams = Upstreams(model, PROBE_SECONDS, MonotonicClock())
        served = ServedModel(model, upstreams, PROBE_SECONDS, MonotonicClock())
        engine = served.engine
        cards = {card.name: card for card in await engine.models()}
        names, card = list(cards), cards.get(model.name)
        if names and card is None:
            return [Finding("bad", subject, f"the engine serves {', '.join(names[:5])}", f"--model {names[0]}")]
        digest = None if card is None else card.vocabulary
        findings = [Finding("ok", subject, f"{model.driver} at {model.upstream}: {able(engine.capabilities)}")]
        if digest is not None and model.driver != "builtin":
            # It cannot do all that engines of the other kind can.
            said = f"`agentworld engine` answers at {model.upstream}, and is taken for {model.driver}"
            findings = [Finding("info", subject, said, "--driver builtin")]
        if served.token_in is not None:
            findings.append(await check_tokenizer(model, engine, served.token_in, digest))
            if findings[-1].state == "bad":
                return findings
        return [*findings, *await _probe(model, served)]
    except AgentWorldError as error:
        return [bad(subject, error)]
    finally:
        if upstreams is not None:
            await upstreams.close()


def able(capabilities: Capabilities) -> str:
    """What engines of a kind can do, in words."""
    if capabilities.ids:
        ids = "ids in plain and streamed replies" if capabilities.stream_ids else "ids in plain replies only"
    else:
        ids = "text without ids"
    can = {
        "prompts of ids": capabilities.token_in,
        "images": capabilities.media,
        "demanded tool calls": capabilities.tool_choice,
        "JSON schemas": capabilities.structured,
    }
    return ", ".join([ids, *(what for what, there in can.items() if there)])


async def check_tokenizer(model: ModelSettings, engine: Engine, token_in: TokenIn, digest: str | None) -> Finding:
    """Whether the tokenizer is the model's: by the engine's own digest of it, else by the prompt that it renders."""
    fix = "give the folder or tokenizer.json of the model that the engine serves (for `agentworld engine`, its --model)"
    if digest is not None:
        if digest == token_in.vocabulary:
            return Finding("ok", "tokenizer", "its vocabulary is the engine's")
        return Finding("bad", "tokenizer", f"the vocabulary of {model.tokenizer} is not that of the engine", fix)
    request = probe(model, PROBE_TEXT)
    try:
        pieces = await _all_of(engine.chat(request))
    except AgentWorldError as error:
        return Finding("info", "tokenizer", f"cannot be compared: {error.message}", "check that it is the model's")
    theirs = next((piece.prompt_ids for piece in pieces if piece.prompt_ids), None)
    if theirs is None:
        return Finding(
            "info", "tokenizer", "cannot be compared: the engine gives no ids of prompts", "check it by hand"
        )
    ours = list(token_in.rendering({}).renderer.render_ids(_plain(PROBE_TEXT), add_generation_prompt=True))
    return compare_prompts(token_in.tokenizer.decode(theirs), ours == theirs, fix)


def compare_prompts(text: str, same: bool, fix: str) -> Finding:
    """What the engine's prompt says: `text`, its ids read by our tokenizer; `same`, whether ours has the same ids."""
    if same:
        return Finding("ok", "tokenizer", "renders the same prompt as the engine")
    if PROBE_TEXT in text:
        return Finding(
            "info",
            "tokenizer",
            "reads the engine's prompt, but the engine's template renders it otherwise",
            "nothing, if the renderer is the one that you mean (see renderer in the configuration)",
        )
    return Finding("bad", "tokenizer", "cannot read the ids of the engine's prompt", fix)


def probe(model: ModelSettings, text: str, tools: Sequence[dict[str, Any]] = ()) -> Request:
    """A call for one token."""
    from agentworld.dialects.exchange import Request
    from agentworld.engines.base import explicit
    from agentworld.records import Message, Sampling

    return Request(
        dialect="chat",
        model=model.name,
        messages=(Message(role="user", content=text),),
        sampling=explicit(Sampling(max_tokens=1, temperature=1.0)),
        tools=tuple(tools),
    )


def _plain(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def _all_of(call: AbstractAsyncContextManager[AsyncIterator[Delta]]) -> list[Delta]:
    async with call as deltas:
        return [piece async for piece in deltas]


async def _probe(model: ModelSettings, served: ServedModel) -> list[Finding]:
    """Short calls: whether ids and log-probabilities come back, and whether tools are understood."""
    from agentworld.records import Sampling

    request = probe(model, "Hi")
    if served.mode == "none":
        request = msgspec.structs.replace(request, sampling=Sampling(max_tokens=1, temperature=1.0))
    if served.token_in is not None:
        prompt = served.token_in.tokenizer.encode("Hi")
        pieces = await _all_of(served.engine.generate(prompt, request, request.sampling))
    else:
        pieces = await _all_of(served.engine.chat(request))
    ids = any(piece.ids for piece in pieces)
    logprobs = any(piece.logprobs for piece in pieces)
    findings = [tokens_finding(model, served, ids, logprobs)]
    if served.token_in is None:
        try:
            await _all_of(served.engine.chat(msgspec.structs.replace(request, tools=(PROBE_TOOL,))))
            findings.append(Finding("ok", "tool calls", "the engine takes tools"))
        except AgentWorldError as error:
            findings.append(tools_finding(model, error))
    return findings


def tools_finding(model: ModelSettings, error: AgentWorldError) -> Finding:
    """What a refusal of tools means. A model that knows none is no fault: agents without tools work."""
    said = error.message.lower()
    if model.driver == "vllm" and ("tool-call-parser" in said or "auto-tool-choice" in said or "tool choice" in said):
        fix = "start vLLM with --enable-auto-tool-choice --tool-call-parser NAME"
        return Finding("bad", "tool calls", error.message, fix)
    if isinstance(error, InvalidRequestError):
        return Finding(
            "info", "tool calls", error.message, "for agents with tools, serve a model whose template has them"
        )
    return bad("tool calls", error)


_GIVES_IDS = {
    "vllm": "vLLM 0.10.2 or newer",
    "sglang": "an SGLang worker that knows return_meta_info, and no router before it",
    "llamacpp": "a llama-server that knows return_tokens",
}


def tokens_finding(model: ModelSettings, served: ServedModel, ids: bool, logprobs: bool) -> Finding:
    """Whether what came back is enough to train on."""
    if served.mode == "none":
        fix = "for training, serve the model by an engine that gives ids, or set --tokens and --tokenizer"
        return Finding("info", "tokens", f"text only: {served.reason}", fix)
    if ids and logprobs:
        return Finding("ok", "tokens", f"{served.mode}: {served.reason}; ids and log-probabilities come back")
    missing = " and ".join(name for name, there in (("ids", ids), ("log-probabilities", logprobs)) if not there)
    if served.mode == "token-in":
        fix = "an engine of this driver should return them; check its version"
    else:
        engine = _GIVES_IDS.get(model.driver, "an engine that returns them")
        fix = f"use {engine}, or --tokens token-in --tokenizer PATH"
    return Finding("bad", "tokens", f"{served.mode}, but no {missing} came back from {model.upstream}", fix)
