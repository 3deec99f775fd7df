"""Reads streams in tests, the simple way."""

import asyncio
import json


def events(raw):
    """The JSON payloads of a well-formed stream, and whether it ended with [DONE]."""
    payloads = [line[6:] for line in raw.decode().split("\n") if line.startswith("data: ")]
    done = bool(payloads) and payloads[-1] == "[DONE]"
    return [json.loads(payload) for payload in payloads if payload != "[DONE]"], done


def choices(chunks, index=0):
    """The entries of one choice, in order."""
    return [entry for chunk in chunks for entry in chunk["choices"] if entry["index"] == index]


def joined(entries):
    """Text, ids and log-probabilities of a choice's entries, chat or completions."""
    text = "".join(e["text"] if "text" in e else e["delta"].get("content") or "" for e in entries)
    ids = [i for e in entries for i in e.get("token_ids") or []]
    logprobs = []
    for entry in entries:
        given = entry.get("logprobs") or {}
        logprobs += given.get("token_logprobs") or [item["logprob"] for item in given.get("content") or []]
    return text, ids, logprobs


async def until(condition, seconds=100):
    """Wait for a condition of another thread or task."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing signals it
            await asyncio.sleep(0.005)
