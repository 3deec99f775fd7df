"""A tiny cell from the expert to its result, interrupted on the way, over real processes."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("reasoning_gym")

from experiments.batches import ChangingTrainer  # noqa: E402
from experiments.cells import CELLS, Plan  # noqa: E402
from experiments.results import read_results  # noqa: E402
from experiments.starts import start_weights  # noqa: E402
from experiments.task_sets import Sums  # noqa: E402
from experiments.training import run_cell, settings_of  # noqa: E402

import agentworld as aw  # noqa: E402
from agentworld.engines.builtin.models import open_model  # noqa: E402
from agentworld.engines.builtin.pocket import load_pocket  # noqa: E402
from agentworld.engines.builtin.server import BuiltinEngine, EngineSettings  # noqa: E402
from agentworld.engines.http_surface import EngineApp, Server  # noqa: E402
from agentworld.errors import ConflictError  # noqa: E402
from agentworld.trainers.checkpoint import CheckpointRecord, latest_checkpoint, save_checkpoint  # noqa: E402
from agentworld.trainers.reference import build_optimizer  # noqa: E402
from agentworld.trainers.settings import TrainSettings  # noqa: E402

PLAN = Plan(iterations=2, teacher_tasks=8, epochs=1, evaluation_tasks=2, groups=2, rollouts=2)
# Whoever begins has learnt nothing and is always wrong, so that with every reward turned round each is 1.
CELL = msgspec.structs.replace(CELLS["ppo"], name="tiny", axis="test", what="a test", corrupted=1.0, lag=1)


class Interrupted(Exception):
    """What ends the first process of the run."""


@pytest.fixture
def engine_url() -> Iterator[str]:
    """An engine of this process, which has torch loaded anyway."""
    torch.set_num_threads(1)
    ready: list[str] = []
    begun, stop, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        settings = EngineSettings(model="pocket")
        engine = BuiltinEngine(open_model("pocket"), settings)
        engine.start()
        server = Server(EngineApp(engine, None))
        await server.start()
        ready.append(server.url)
        begun.set()
        await stop.wait()
        await server.stop()
        engine.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert begun.wait(60)
    yield ready[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()
    loop.close()


def start_without_an_expert(folder: Path) -> None:
    """Random weights in the place of those that imitate an expert."""
    model, _ = load_pocket(seed=0)
    record = CheckpointRecord(updates=0, version=0, run="start", method="sft")
    save_checkpoint(folder / "weights", model, build_optimizer(model, TrainSettings()), record)


def test_a_run_goes_on_where_it_was_interrupted(
    tmp_path: Path, engine_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second batch is sampled, its rewards are turned round, and nobody hears of what was trained on it."""
    work, results, said = tmp_path / "work", tmp_path / "results", []
    start_without_an_expert(work / f"start-sums-{PLAN.teacher_tasks}x{PLAN.epochs}")
    folder = work / "tiny-seed0"
    whole = ChangingTrainer.save

    def interrupt(trainer: ChangingTrainer) -> Path:
        if trainer.record.version == 2:
            raise Interrupted
        return whole(trainer)

    with monkeypatch.context() as patched, pytest.raises(Interrupted):
        patched.setattr(ChangingTrainer, "save", interrupt)
        run_cell(CELL, 0, PLAN, work, results, engine_url, said.append)
    assert read_results(results) == []
    with pytest.raises(ConflictError, match="another plan"):
        run_cell(CELL, 0, msgspec.structs.replace(PLAN, iterations=9), work, results, engine_url, said.append)

    def look(line: str) -> None:
        said.append(line)
        with aw.open_pool(f"sqlite:///{folder / 'pool.db'}") as pool:
            played = pool.list_trajectories(channel="train").items
        assert [each.reward for each in played] == [1.0] * PLAN.groups * PLAN.rollouts * PLAN.iterations

    path = run_cell(CELL, 0, PLAN, work, results, engine_url, look)
    assert [line.partition(", ")[0] for line in said] == ["tiny seed 0: batch 1/2", "tiny seed 0: batch 2/2"]
    (result,) = read_results(results)
    assert path.name == "tiny-seed0.json"
    assert not folder.exists()
    assert (result.cell, result.seed, result.plan) == (CELL, 0, PLAN)
    assert result.before.tasks == result.after.tasks
    assert len(result.after.passed) == PLAN.evaluation_tasks
    assert [point["corrupted"] for point in result.curve] == [PLAN.groups * PLAN.rollouts] * 2
    assert [point["reward"] for point in result.curve] == [0.0, 0.0]  # As the checker had them.
    assert all(point["tokens"] > 0 for point in result.curve)
    assert all(point["value_error"] > 0 for point in result.curve)
    assert result.cpu_seconds > 0


@pytest.mark.scale
def test_the_start_imitates_the_expert(tmp_path: Path) -> None:
    """Where it was made it is not made again."""
    made = start_weights(Sums(), PLAN, tmp_path)
    assert made == latest_checkpoint(tmp_path / "weights")
    with aw.open_pool(f"sqlite:///{tmp_path / 'pool.db'}") as pool:
        played = pool.list_trajectories(channel="expert").items
    assert [each.reward for each in played] == [1.0] * PLAN.teacher_tasks
    changed = (made / "model.safetensors").stat().st_mtime_ns
    assert start_weights(Sums(), PLAN, tmp_path) == made
    assert (made / "model.safetensors").stat().st_mtime_ns == changed


def test_the_trainer_takes_the_settings_of_every_cell() -> None:
    for cell in CELLS.values():
        assert settings_of(cell, 2).method == cell.method
    spec = settings_of(CELLS["ppo"], 0).credit_spec
    assert spec is not None
    assert (spec.method, spec.truncated) == ("gae", "terminal")
