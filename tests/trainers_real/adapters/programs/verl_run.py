"""verl's configuration with the plug-in in it, its tiny model, and engines that say what a script says."""

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import given
import verl
from hydra import compose, initialize_config_dir
from verl.workers.rollout.llm_server import LLMServerClient

from agentworld.tasks.definition import task_set_from
from agentworld.verl_loop.hydra_config import overrides, write_loop_config
from agentworld.verl_loop.playing import prompt_row

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT))

from tests.verl_loop.engines import ScriptedClient  # noqa: E402

CONFIGS = str(Path(verl.__file__).parent / "trainer" / "config")
DOORS = ["left", "right"]


class Engines(LLMServerClient):
    """verl's client without servers behind it."""

    def __init__(self, config, script, version=3):
        super().__init__(config)
        self.scripted = ScriptedClient(script, version)
        server = SimpleNamespace(generate=SimpleNamespace(remote=self._answer))
        self._acquire_server = lambda request_id, **_: _soon(("one", server))
        self._release_server = lambda *_, **__: None

    async def _answer(self, request_id, prompt_ids, sampling_params, image_data, video_data, **_):
        return await self.scripted.generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params)


async def _soon(value):
    return value


def settings_file(agent=(), **more):
    """The settings, with one task for each door; `agent`: lines of its table."""
    tasks = given.FOLDER / "doors.jsonl"
    tasks.write_text("".join(json.dumps({"prompt": f"Door {name}?", "reference": name}) + "\n" for name in DOORS))
    lines = {"pool": f"sqlite:///{given.FOLDER}/pool.db", **more}
    path = given.FOLDER / "loop.toml"
    path.write_text(
        "".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items())
        + f'[task_set]\nfile = "{tasks}"\nchecker = "contains"\nheldout = 0.0\n[agent]\n'
        + "".join(f"{line}\n" for line in agent or ['kind = "loop"'])
    )
    return path


def rows():
    """The rows of the parquet file that the prompts would come from."""
    tasks = task_set_from({"file": str(given.FOLDER / "doors.jsonl"), "checker": "contains", "heldout": 0.0}).tasks()
    return [prompt_row(task, index) for index, task in enumerate(tasks)]


def configuration(settings, *, v1, extra=()):
    """verl's own configuration, checked by hydra."""
    loop = write_loop_config(settings, given.FOLDER / "loop.yaml")
    with initialize_config_dir(config_dir=CONFIGS, version_base=None):
        return compose(
            "ppo_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={given.FOLDER}/model",
                "+actor_rollout_ref.model.override_config.attn_implementation=eager",
                "actor_rollout_ref.rollout.name=vllm",
                "actor_rollout_ref.rollout.n=2",
                "data.max_prompt_length=64",
                "data.max_response_length=32",
                "algorithm.adv_estimator=grpo",
                "actor_rollout_ref.actor.ppo_mini_batch_size=2",
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
                f"trainer.default_local_dir={given.FOLDER}/checkpoints",
                *overrides(loop, v1=v1),
                *extra,
            ],
        )


def run(work):
    """Await, and end the gateway with it."""
    from agentworld.verl_loop.station import stop_stations

    try:
        return asyncio.run(work)
    finally:
        stop_stations()
