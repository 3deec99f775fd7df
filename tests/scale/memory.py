"""Processes that work through a million steps and say how large they are on the way.

`python -m tests.scale.memory gateway|consumer URL STEPS` prints one JSON line a sample: {"steps", "kib"}, where
`kib` is what the process holds in memory.
"""

import asyncio
import contextlib
import json
import logging
import re
import sys
from pathlib import Path

import structlog

from agentworld.capture.sessions import Sessions
from agentworld.config import ModelSettings, ServeSettings
from agentworld.dialects.exchange import Delta
from agentworld.gateway.access import EVERYTHING, GRANT
from agentworld.gateway.app import Gateway
from agentworld.pool import open_store
from agentworld.records import BatchSpec, Usage

SAMPLES = 50
AT_ONCE, TURNS, CHOICES, NEW_IDS = 8, 4, 64, 10
CACHE_BYTES, REMEMBERED = 8 << 20, 500  # limits are larger elsewhere; these are reached early
LEASED = 500


def resident():
    """KiB of this process in memory."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


class Samples:
    """Prints a line each time that another part of the whole is done."""

    def __init__(self, total):
        self._every, self._next = total // SAMPLES, 0

    def at(self, done):
        if done >= self._next:
            self._next += self._every
            print(json.dumps({"steps": done, "kib": resident()}), flush=True)


def consume(pool, total):
    """Lease and acknowledge a batch of 500 steps at a time, until all are had."""
    samples, done = Samples(total), 0
    spec = BatchSpec(method="sft", unit="step", size=LEASED, min_size=1, lease_seconds=600.0)
    while (batch := pool.lease(spec, "trainer")) is not None:
        done += len(batch.items)
        pool.ack(batch.batch_id, batch.epoch)
        samples.at(done)
    assert done >= total, f"{done} of {total} steps came"


class InstantEngine:
    """Answers in no time, with as many choices as are asked for; is otherwise the engine that it stands for."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    @contextlib.asynccontextmanager
    async def chat(self, request):
        yield self._deltas(request)

    async def _deltas(self, request):
        turn = len(request.messages) // 2
        prompt = list(range(turn * NEW_IDS + 6))
        yield Delta(index=-1, prompt_ids=prompt, policy_version=0, policy_run="r", logprobs_mode="processed_logprobs")
        for index in range(request.sampling.n):
            ids = [*range(turn * NEW_IDS + 6, turn * NEW_IDS + 9), index]
            yield Delta(index=index, text=f"answer {index}", ids=ids, logprobs=[-0.5] * 4, finish_reason="stop")
        yield Delta(index=-1, usage=Usage(len(prompt), 4 * request.sampling.n))

    async def close(self):
        pass


async def serve(pool, total):
    """Calls through the whole app, with many choices each; after its last turn a trajectory is ended."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    model = ModelSettings(name="m", upstream="http://127.0.0.1:1", driver="vllm", tokens="engine")
    gateway = Gateway(ServeSettings(pool="unused", models=(model,)), pool)
    gateway.sessions = gateway.admission._sessions = Sessions(pool, CACHE_BYTES)
    forests = pool._appender._forests
    forests._token_tips._limit = forests._message_tips._limit = CACHE_BYTES
    gateway.retries._limit = REMEMBERED
    served = gateway.models.by_name["m"]
    served.upstreams.all[0].engine = InstantEngine(served.engine)
    samples, done, number = Samples(total), 0, 0
    while done < total:
        several = range(number, number + AT_ONCE)
        number += AT_ONCE
        for turn in range(TURNS):
            await asyncio.gather(*(_call(gateway, each, turn) for each in several))
            done += CHOICES * len(several)
            samples.at(done)
        for each in several:
            await asyncio.to_thread(pool.complete_trajectory, f"t{each}", "finished", 1.0)
    await gateway.close()


async def _call(gateway, number, turn):
    messages = [{"role": "user", "content": f"question {number}"}]
    for past in range(turn):
        messages += [{"role": "assistant", "content": "answer 0"}, {"role": "user", "content": f"next {past}"}]
    body = json.dumps({"model": "m", "messages": messages, "n": CHOICES}).encode()
    status = []
    gone = asyncio.Event()
    sent = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if sent:
            return sent.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            status.append(message["status"])

    scope = {
        "type": "http", "method": "POST", "path": f"/t/t{number}/v1/chat/completions", "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")],
        GRANT: EVERYTHING,
    }  # fmt: skip
    await gateway(scope, receive, send)
    assert status == [200]


def main(role, url, total):
    pool = open_store(url)
    try:
        asyncio.run(serve(pool, total)) if role == "gateway" else consume(pool, total)
    finally:
        pool.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
