"""PPO with a critic: values on the model's own states, returns by GAE, the clipped loss, and a head that is kept."""

import numpy as np
import pytest
import torch

from agentworld.credit import CreditSpec
from agentworld.errors import ConfigError
from agentworld.pool import open_store
from agentworld.records import BatchSpec
from agentworld.trainers.checkpoint import latest_checkpoint
from agentworld.trainers.critic import BOOTSTRAP, RETURNS, VALUES, valued
from agentworld.trainers.heads import HEAD
from agentworld.trainers.losses import value_loss
from agentworld.trainers.reference import Trainer
from agentworld.trainers.rows import imitation_rows
from agentworld.trainers.settings import TrainSettings
from tests.trainers.builders import batch, fill, member, reply_logprobs, step, tiny_model

PPO = TrainSettings(method="ppo", learning_rate=2e-3, head_learning_rate=1e-2, rows_per_update=2, epochs=2)


def begun(trainer):
    """The trainer, with a head that is not of zeros."""
    with torch.no_grad():
        trainer.head.weight.copy_(torch.linspace(-0.3, 0.3, 32))
        trainer.head.bias.fill_(0.1)
    return trainer


def runs():
    """One run of two turns with a tool's words between, one whose reply two others go on from, one that was cut."""
    opening = [1, 2, 3]
    told = [
        step("a0", opening, [6, 7, 8], "a", response_mask=[1, 0, 1]),
        step("a1", [*opening, 6, 7, 8, 9, 9], [10, 11], "a"),
    ]
    forked = [step("b0", opening, [6, 12], "b")]
    forked += [step(f"b{n}", [*opening, 6, 12, 4 + n], [13, 14], "b", parent_step_id="b0") for n in (1, 2)]
    cut = member([step("c0", opening, [6, 15], "c")], 0.0, "c")
    cut.trajectory.status = "truncated"
    return batch({"a": [member(told, 1.0, "a")], "b": [member(forked, 0.5, "b")], "c": [cut]}, unit="trajectory")


def test_values_and_returns_are_those_of_a_plain_forward_and_a_loop(tmp_path):
    data, seen = runs(), {}
    for merging in ("on", "off"):
        trainer = begun(Trainer(tiny_model(), settings_of(merging), tmp_path))
        computed = []
        hook = trainer.model.model.register_forward_pre_hook(
            lambda module, given, named, computed=computed: computed.append(named["input_ids"].numel()),
            with_kwargs=True,
        )
        values = {
            step_id: arrays
            for item in valued(data, trainer.objective.values_of).items
            for step_id, arrays in item.trajectories[0].annotations.items()
        }
        hook.remove()
        seen[merging] = sum(computed)
        assert data.items[0].trajectories[0].annotations == {}
        for item in data.items:
            for each in item.trajectories[0].steps:
                ids = [*each.prompt_ids, *each.response_ids]
                with torch.no_grad():
                    hidden = trainer.model.model(torch.tensor([ids])).last_hidden_state[0]
                    after = (hidden @ trainer.head.weight[0] + trainer.head.bias)[len(each.prompt_ids) - 1 :].numpy()
                np.testing.assert_allclose(values[each.step_id][VALUES], after[:-1], atol=1e-5)
                assert values[each.step_id][BOOTSTRAP] == pytest.approx(float(after[-1]), abs=1e-5)
        rows = {unit[0].step_ids[-1]: unit[0] for unit in trainer.units(data)[0]}
        # Of a: 6 and 8 of the first reply, 10 and 11 of the second; a reward of 1 at the end. Of c: 6 and 15, cut off.
        known = [*values["a0"][VALUES][[0, 2]], *values["a1"][VALUES]]
        check_gae(rows["a1"], known, [0, 0, 0, 1.0], 0.0)
        check_gae(rows["c0"], values["c0"][VALUES], [0, 0], values["c0"][BOOTSTRAP])
    assert seen == {"on": 18, "off": 4 * 10}


def settings_of(merging):
    credit = CreditSpec(method="gae", parameters={"per": "token", "gamma": 0.9, "lam": 0.8})
    return TrainSettings(method="ppo", merging=merging, credit=credit)


def check_gae(row, values, rewards, after):
    """Equation 16 of arXiv:1506.02438, from the last token to the first."""
    advantage, following, expected = 0.0, after, []
    for value, reward in zip(reversed(values), reversed(rewards), strict=True):
        advantage = reward + 0.9 * following - value + 0.9 * 0.8 * advantage
        following = value
        expected.insert(0, advantage)
    np.testing.assert_allclose(row.advantages[row.mask], expected, atol=1e-6)
    np.testing.assert_allclose(row.arrays[RETURNS][row.mask], np.asarray(expected) + np.asarray(values), atol=1e-6)


def test_the_value_loss_and_its_gradient_are_the_formula():
    random = np.random.default_rng(6)
    values, returns, weights = random.normal(size=12), random.normal(size=12), random.uniform(0.01, 0.2, 12)
    old = values + random.normal(0, 0.4, 12)

    def by_hand(given):
        bounded = np.clip(given, old - 0.2, old + 0.2)
        return 0.5 * float((np.maximum((given - returns) ** 2, (bounded - returns) ** 2) * weights).sum())

    new = torch.from_numpy(values).requires_grad_()
    found = value_loss(new, *(torch.from_numpy(each) for each in (old, returns, weights)), clip=0.2)
    found.loss.backward()
    slopes = [(by_hand(values + delta) - by_hand(values - delta)) / 2e-6 for delta in 1e-6 * np.eye(12)]
    assert found.loss.item() == pytest.approx(by_hand(values), abs=1e-12)
    np.testing.assert_allclose(new.grad.numpy(), slopes, atol=1e-8)
    assert found.clipped.tolist() == (new.grad == 0).tolist()
    assert 0 < int(found.clipped.sum()) < 12


def test_the_critics_loss_is_added_by_its_weight(tmp_path):
    data, losses = runs(), []
    for weight in (1e-9, 0.5):
        settings = TrainSettings(method="ppo", value_weight=weight, merging="off")
        trainer = begun(Trainer(tiny_model(), settings, tmp_path))
        found = trainer.objective.gradient(trainer.units(data)[0])
        losses.append(found.loss)
    assert found.means["value_error"] > 0.01
    assert losses[1] - losses[0] == pytest.approx(0.5 * found.means["value_error"] / 2, abs=1e-6)


def test_a_critic_learns_what_to_expect_and_the_policy_what_is_rewarded(tmp_path):
    """Two questions, of which one is always rewarded, whatever is said, and one only for one of two replies."""
    model = tiny_model()
    said = {"x": ([1, 2], 5, 1.0), "y": ([1, 2], 6, 1.0), "good": ([3, 4], 5, 1.0), "bad": ([3, 4], 6, 0.0)}
    before = [reply_logprobs(model, [3, 4], [reply])[0] for reply in (5, 6)]
    settings = TrainSettings(
        method="ppo", learning_rate=1e-3, head_learning_rate=3e-2, rows_per_update=4, epochs=2, value_clip=10.0
    )
    trainer = Trainer(model, settings, tmp_path)
    for number in range(8):
        runs = {
            name: [member([step(name, prompt, [reply], name, reply_logprobs(model, prompt, [reply]))], reward, name)]
            for name, (prompt, reply, reward) in said.items()
        }
        metrics = trainer.train_batch(batch(runs, f"bat_{number}", unit="trajectory"))
    assert metrics.figures["value_error"] < 0.3
    after = [reply_logprobs(model, [3, 4], [reply])[0] for reply in (5, 6)]
    assert after[0] - before[0] > after[1] - before[1] + 0.1
    values = [float(own[0][1]) for own in (trainer.objective.values_of([unit]) for unit in rows_of(runs))]
    assert values[0] > values[2]


def rows_of(runs):
    return imitation_rows(batch(runs, unit="trajectory"))


class CrashError(Exception):
    """Stands for a kill at one moment."""


@pytest.mark.parametrize("moment", ["_update", "save", "ack"])
def test_the_head_goes_on_bit_for_bit_wherever_the_trainer_dies(tmp_path, moment, monkeypatch):
    pool = open_store("memory://")
    fill(pool, {f"g{n}": [([step("", [1, n], [4, 5])], 1.0), ([step("", [1, n], [6])], 0.0)] for n in range(2)})
    spec = BatchSpec(method="ppo", size=2)
    undisturbed = Trainer(tiny_model(), PPO, tmp_path / "undisturbed")
    list(undisturbed.run(pool.consumer("undisturbed"), spec, batches=2, timeout=0))
    trainer = Trainer(tiny_model(), PPO, tmp_path / "policy")

    def dies(*given, **named):
        """In the second batch: what was learnt in the first is to come back."""
        if trainer.record.version == 0 or (moment != "_update" and trainer.record.version == 1):
            return plain(*given, **named)
        raise CrashError

    with monkeypatch.context() as patched:
        if moment == "ack":
            from agentworld.pool.consumer import LeasedBatch

            plain = LeasedBatch.ack
            patched.setattr(LeasedBatch, "ack", lambda self: dies(self))
        else:
            plain = getattr(trainer, moment)
            patched.setattr(trainer, moment, dies)
        with pytest.raises(CrashError):
            list(trainer.run(pool.consumer("policy"), spec, batches=2, timeout=0))
    again = Trainer(tiny_model(7), PPO, tmp_path / "policy")
    assert again.resume()
    list(again.run(pool.consumer("policy"), spec, batches=2 - again.record.version, timeout=0))
    for one, two in ((undisturbed.model, again.model), (undisturbed.head, again.head)):
        assert all(torch.equal(value, two.state_dict()[name]) for name, value in one.state_dict().items())
    states = [each.optimizer.state_dict() for each in (undisturbed, again)]
    assert states[0]["param_groups"] == states[1]["param_groups"]
    for place, own in states[0]["state"].items():
        assert all(torch.equal(value, states[1]["state"][place][name]) for name, value in own.items())
    assert float(again.head.weight.detach().abs().max()) > 0
    pool.close()


def test_a_checkpoint_without_a_head_is_refused_in_words(tmp_path):
    Trainer(tiny_model(), PPO, tmp_path).save()
    path = latest_checkpoint(tmp_path) / HEAD
    path.unlink()
    with pytest.raises(ConfigError, match="holds no head"):
        Trainer(tiny_model(), PPO, tmp_path).resume()


def test_stored_values_are_asked_for_only_where_they_are_used():
    """That they are where `critic` says so is a test of leases."""
    assert TrainSettings(method="ppo").requires == ("tokens", "logprobs")
