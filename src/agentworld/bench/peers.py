"""Other gateways, each in an environment of its own, before the same engine: LiteLLM's proxy, rLLM's model gateway and
Agent-Lightning's proxy.

`benchmarks/peers/install.sh` makes the environments. None of them is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ENVIRONMENTS = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "agentworld" / "peers"


class Start(NamedTuple):
    """How to start a peer: its command and variables. `path`: where its calls of a chat go, or the file in which it
    says so once it runs.
    """

    command: Sequence[str]
    environment: dict[str, str]
    path: str | Path

    def route(self) -> str:
        """Where calls of a chat go, once the peer runs."""
        return self.path if isinstance(self.path, str) else self.path.read_text()


class Peer(NamedTuple):
    """One peer. `times`: how many times as many calls a second are required of us."""

    name: str
    title: str
    executable: str
    times: float | None


LITELLM = Peer("litellm", "LiteLLM's proxy", "litellm", 25.0)
RLLM = Peer("rllm", "rLLM's model gateway", "rllm-model-gateway", 8.0)
AGENTLIGHTNING = Peer("agentlightning", "Agent-Lightning's proxy", "python", None)
PEERS = (LITELLM, RLLM, AGENTLIGHTNING)
# Runs in its environment, not in ours. The store is its own, in memory.
_AGENTLIGHTNING = """
import asyncio, sys
from agentlightning import InMemoryLightningStore, LLMProxy

async def main():
    model = {"model_name": "replay", "litellm_params": {"model": "hosted_vllm/replay", "api_base": sys.argv[1] + "/v1"}}
    model["litellm_params"]["api_key"] = "none"
    store = InMemoryLightningStore(thread_safe=True)
    rollout = await store.start_rollout(input={})
    with open(sys.argv[3], "w") as said:
        said.write(f"/rollout/{rollout.rollout_id}/attempt/{rollout.attempt.attempt_id}/v1/chat/completions")
    proxy = LLMProxy(port=int(sys.argv[2]), model_list=[model], store=store, launch_mode="thread")
    await proxy.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def start(peer: Peer, environments: Path, engine: str, port: int, folder: Path) -> Start | None:
    """How to start the peer before the engine, with its files in `folder`; None where it is not installed."""
    executable = environments.expanduser() / peer.name / "bin" / peer.executable
    if not executable.exists():
        return None
    if peer is RLLM:
        # Its sessions are trajectories; it keeps traces in SQLite, which is its default.
        command = ["--host", "127.0.0.1", "--port", str(port), "--worker", f"{engine}/v1", "--log-level", "WARNING"]
        more = ["--db-path", str(folder / "rllm.db")]
        return Start([str(executable), *command, *more], {}, "/sessions/{}/v1/chat/completions")
    quiet = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        # Without a key it does the least for a call.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    if peer is AGENTLIGHTNING:
        route = folder / "agentlightning.route"
        return Start([str(executable), "-c", _AGENTLIGHTNING, engine, str(port), str(route)], quiet, route)
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n"
        "  - model_name: replay\n"
        f"    litellm_params: {{model: hosted_vllm/replay, api_base: {engine}/v1, api_key: none}}\n"
    )
    command = ["--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return Start([str(executable), *command], quiet, "/v1/chat/completions")
