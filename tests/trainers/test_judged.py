"""What is judged by itself: KTO on trajectories, process reward models on steps; against numpy and plain forwards."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from agentworld.cli import invoke
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.factory import open_pool
from agentworld.records import BatchItem, BatchTrajectory, Reward, Trajectory
from agentworld.rewards.registry import make_evaluator
from agentworld.trainers.heads import HEAD
from agentworld.trainers.judged_rows import GOOD, stepwise_rows, unpaired_rows
from agentworld.trainers.losses import stepwise_loss, unpaired_loss
from agentworld.trainers.mismatched import mismatched_rows
from agentworld.trainers.process_rewards import Judge, step_probabilities
from agentworld.trainers.reference import Trainer
from agentworld.trainers.settings import TrainSettings
from tests.trainers.builders import batch, fill, member, step, tiny_model


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plain_logprobs(model, row):
    """The sum over the marked tokens of a row, by a plain forward."""
    with torch.no_grad():
        table = torch.log_softmax(model(torch.from_numpy(row.ids)[None]).logits[0].double(), -1)
    return sum(float(table[at - 1, row.ids[at]]) for at in np.flatnonzero(row.mask))


def judged(rewards=(1.0, 0.0, 0.25, 0.75)):
    """Runs of two turns with a tool's word between; the last one forked, so it is two rows."""
    runs = {}
    for number, reward in enumerate(rewards):
        name, opening = f"t{number}", [1, 2, 3, 4 + number % 2]
        steps = [
            step(f"{name}a", opening, [6, 7 + number], name),
            step(f"{name}b", [*opening, 6, 7 + number, 9], [8], name),
        ]
        if number == len(rewards) - 1:
            steps.append(step(f"{name}c", [1, 2, 20], [21, 22], name))
        runs[name] = [member(steps, reward, name)]
    return batch(runs, unit="trajectory")


@pytest.mark.parametrize("merging", ["on", "off"])
def test_kto_is_its_formula_from_a_batch_to_the_loss(tmp_path, merging):
    """With weights that have moved away from the reference, the divergence estimated by replies to other questions."""
    settings = TrainSettings(
        method="kto", merging=merging, beta=0.3, desirable_weight=1.5, undesirable_weight=0.5, micro_tokens=24
    )
    model, first = tiny_model(), tiny_model()
    trainer = Trainer(model, settings, tmp_path)
    ids = torch.tensor([[1, 2, 3, 4, 6, 7, 9, 8]])
    model(ids, labels=ids).loss.backward()
    with torch.no_grad():
        for weights in model.parameters():
            weights -= 0.3 * weights.grad
    model.zero_grad()
    units, reward = trainer.units(judged())
    assert reward == 0.5
    assert [len(unit) for unit in units] == [1, 1, 1, 2]
    assert [unit[0].preferred for unit in units] == [True, False, False, True]

    def moved(rows):
        return sum(plain_logprobs(model, row) - plain_logprobs(first, row) for row in rows)

    others = mismatched_rows(units)
    assert others[1].ids.tolist() == [1, 2, 3, 5, 6, 7, 9, 8]  # the second question, the first one's reply
    assert others[0].ids.tolist() == [1, 2, 3, 4, 6, 10, 9, 8]
    assert others[1].mask.tolist() == [False] * 4 + [True, True, False, True]
    divergence = max(0.0, float(np.mean([moved([row]) for row in others])))
    expected = []
    for unit in units:
        sign, weight = (1, 1.5) if unit[0].preferred else (-1, 0.5)
        expected.append(weight * (1 - sigmoid(0.3 * sign * (moved(unit) - divergence))))
    found = trainer.objective.gradient(units)
    assert found.loss == pytest.approx(np.mean(expected), abs=1e-6)
    assert found.means["kl"] == pytest.approx(divergence, abs=1e-5)
    assert divergence > 0.01
    assert abs(found.loss - 0.5) > 1e-3


def test_the_gradient_of_kto_is_that_of_its_formula_with_a_given_divergence():
    random = np.random.default_rng(4)
    new, reference = random.normal(-2, 0.5, 9), random.normal(-2, 0.5, 9)
    row, unit = np.array([0, 0, 1, 1, 1, 2, 3, 3, 3]), np.array([0, 1, 1, 2])
    desirable, z, weights = np.array([True, False, False, True]), 0.4, {0: 2.1, 1: 0.7, 2: 2.1}

    def by_hand(values):
        total = 0.0
        for each in range(3):
            moved = float((values - reference)[unit[row] == each].sum())
            sign = 1 if desirable[unit == each][0] else -1
            total += weights[each] * (1 - sigmoid(0.7 * sign * (moved - z)))
        return total / 3

    logprobs = torch.from_numpy(new).requires_grad_()
    given = (torch.from_numpy(each) for each in (reference, row, unit, desirable))
    found = unpaired_loss(
        logprobs, *given, divergence=z, weight=1 / 3, beta=0.7, desirable_weight=2.1, undesirable_weight=0.7
    )
    found.loss.backward()
    slopes = [(by_hand(new + delta) - by_hand(new - delta)) / 2e-6 for delta in 1e-6 * np.eye(9)]
    assert found.loss.item() == pytest.approx(by_hand(new), abs=1e-12)
    np.testing.assert_allclose(logprobs.grad.numpy(), slopes, atol=1e-8)


def test_kto_makes_good_replies_likelier_and_needs_rewards(tmp_path):
    model = tiny_model()
    runs = {f"t{n}": [member([step(f"s{n}", [1, 2], [5 + n], f"t{n}")], float(n), f"t{n}")] for n in range(2)}
    data = batch(runs, unit="trajectory")
    rows = [unit[0] for unit in unpaired_rows(data, 0.5)[0]]
    before = [plain_logprobs(model, row) for row in rows]
    settings = TrainSettings(method="kto", learning_rate=2e-3, epochs=3, rows_per_update=2)
    metrics = Trainer(model, settings, tmp_path).train_batch(data)
    after = [plain_logprobs(model, row) for row in rows]
    assert after[1] > before[1]
    assert after[0] < before[0]
    assert metrics.figures["accuracy"] > 0
    with pytest.raises(InvalidRequestError, match="t has no reward"):
        unpaired_rows(batch({"t": [member([step("s", [1], [2], "t")], None, "t")]}), 0.5)


def stepwise(rewards):
    """Two runs of three turns whose steps have these rewards, one as it was at the lease and another since."""
    items = []
    for run, own in enumerate(rewards):
        steps, history = [], [1, 2, 3 + run]
        for turn, reward in enumerate(own):
            steps.append(step(f"s{run}{turn}", history, [10 + turn, 20 if reward else 21], f"t{run}"))
            steps[-1].rewards = {"reward": 0.0}
            history = [*history, *steps[-1].response_ids, 5]
        known = {each.step_id: {"reward": reward} for each, reward in zip(steps, own, strict=True)}
        whole = BatchTrajectory(trajectory=Trajectory(trajectory_id=f"t{run}"), steps=steps, loss_denominator=6)
        items.append(BatchItem(key=f"t{run}", trajectories=[whole], rewards=known))
    data = batch({}, unit="trajectory")
    data.items = items
    return data


def test_prm_is_cross_entropy_after_the_last_token_of_each_step(tmp_path):
    data = stepwise([(1.0, 0.0, 0.5), (0.2, 1.0, 0.0)])
    rows = stepwise_rows(data, 0.5)
    assert [np.flatnonzero(row.mask).tolist() for row in rows] == [[4, 7, 10]] * 2
    assert [row.arrays[GOOD][row.mask].tolist() for row in rows] == [[1, 0, 1], [0, 1, 0]]
    assert [row.trajectory_tokens for row in rows] == [3, 3]
    losses = []
    for merging in ("on", "off"):
        trainer = Trainer(tiny_model(), TrainSettings(method="prm", merging=merging), tmp_path / merging)
        head = trainer.head
        with torch.no_grad():
            head.weight.copy_(torch.linspace(-1, 1, 32))
            head.bias.fill_(0.3)
        units, reward = trainer.units(data)
        assert reward is None
        logits, labels = [], []
        with torch.no_grad():
            for row in rows:
                hidden = trainer.model.model(torch.from_numpy(row.ids)[None]).last_hidden_state[0]
                logits.append((hidden @ head.weight[0] + head.bias)[torch.from_numpy(row.mask)])
                labels.append(torch.from_numpy(row.arrays[GOOD][row.mask]))
        logits, labels = torch.cat(logits), torch.cat(labels)
        # As a classifier of tokens into two classes has it, which is how others write it.
        two = torch.stack([torch.zeros_like(logits), logits], dim=1)
        expected = torch.nn.functional.cross_entropy(two, labels.long())
        found = trainer.objective.gradient(units)
        losses.append(found.loss)
        assert found.loss == pytest.approx(float(expected), abs=1e-6)
        assert found.means["accuracy"] == pytest.approx(float(((logits > 0) == (labels > 0.5)).float().mean()))
        assert head.weight.grad.abs().sum() > 0
        assert trainer.model.model.embed_tokens.weight.grad.abs().sum() > 0
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    own = stepwise_loss(logits.double(), labels.double(), torch.full((6,), 1 / 6, dtype=torch.float64))
    numbers, truth = logits.double().numpy(), labels.double().numpy()
    by_hand = -np.mean(truth * np.log(sigmoid(numbers)) + (1 - truth) * np.log(1 - sigmoid(numbers)))
    assert float(own.loss) == pytest.approx(by_hand, abs=1e-12)


def test_a_process_reward_model_learns_and_its_head_goes_on(tmp_path):
    data = stepwise([(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)])
    settings = TrainSettings(method="prm", learning_rate=1e-3, head_learning_rate=2e-2, epochs=15, rows_per_update=2)
    trainer = Trainer(tiny_model(), settings, tmp_path)
    said = []
    trainer.train_batch(data, lambda done, total, figures: said.append(figures))
    assert said[-1]["loss"] < 0.3 < said[0]["loss"] == pytest.approx(np.log(2), abs=1e-6)
    assert said[-1]["accuracy"] == 1.0
    checkpoint = trainer.save()
    assert (checkpoint / HEAD).is_file()
    assert [each.name for each in checkpoint.glob("*.safetensors")] == ["model.safetensors"]  # as engines load them
    likely = step_probabilities(Judge(trainer.model, trainer.head), data.items[0].trajectories[0].steps)
    assert [likely[f"s0{turn}"] > 0.5 for turn in range(3)] == [True, False, True]
    other = Trainer(tiny_model(3), settings, tmp_path)
    assert other.resume()
    assert all(
        torch.equal(one, two) for one, two in zip(trainer.head.parameters(), other.head.parameters(), strict=True)
    )
    with pytest.raises(InvalidRequestError, match="s00 has no reward"):
        data.items[0].rewards, data.items[0].trajectories[0].steps[0].rewards = {}, {}
        stepwise_rows(data, 0.5)


def test_a_job_trains_a_judge_that_evaluates_steps(tmp_path):
    url = f"sqlite:///{tmp_path}/pool.db"
    pool = open_pool(url)
    fill(pool, {f"g{n}": [([step("", [1, n], [4]), step("", [1, n, 4, 9], [6])], 1.0)] for n in range(2)})
    pool.add_rewards([Reward(value=1.0 - place, step_id=f"g{n}-0-{place}") for n in range(2) for place in range(2)])
    runs = [
        BatchTrajectory(
            trajectory=one, steps=pool.list_steps(trajectory_id=one.trajectory_id, include=("tokens",)).items
        )
        for one in pool.list_trajectories().items
    ]
    pool.close()
    path = tmp_path / "train.toml"
    path.write_text(
        f'pool = "{url}"\nmodel = "pocket"\nout = "{tmp_path}/out"\n[batch]\nsize = 2\n[settings]\nmethod = "prm"\n'
        "epochs = 12\nrows_per_update = 2\nlearning_rate = 1e-4\nhead_learning_rate = 2e-2\nthreads = 1\n"
    )
    assert invoke(["train", str(path)]) == 0
    kind = "agentworld.trainers.process_rewards:process_reward_model"
    table = {
        "kind": kind,
        "isolation": "none",
        "parameters": {"checkpoint": str(tmp_path / "out" / "checkpoint-000001")},
    }
    judge = make_evaluator(table, "rewards.toml")
    assert (judge.name, judge.scope) == ("process_reward_model", "step")
    for run in runs:
        verdicts = judge.evaluate(run)
        values = [verdicts[each.step_id].values["reward"] for each in run.steps]
        assert values[0] > 0.6 > 0.4 > values[1]
    before = judge.evaluate(runs[0])[runs[0].steps[0].step_id].values["reward"]
    head = tmp_path / "out" / "checkpoint-000001" / HEAD
    save_file({name: tensor * 2 for name, tensor in load_file(head).items()}, head.with_suffix(".new"))
    head.with_suffix(".new").replace(head)  # Weights that are put in place of others are the ones that judge.
    after = judge.evaluate(runs[0])[runs[0].steps[0].step_id].values["reward"]
    assert np.log(after / (1 - after)) == pytest.approx(2 * np.log(before / (1 - before)), rel=1e-3)
    table["parameters"]["checkpoint"] = str(tmp_path / "out")
    with pytest.raises(ConfigError, match="is not a checkpoint"):
        make_evaluator(table, "rewards.toml").evaluate(runs[0])
