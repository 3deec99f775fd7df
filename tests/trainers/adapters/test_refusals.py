"""What a layout lacks is refused with the step's name and what to do; nothing is filled in."""

import pytest

from agentworld.capture.media import shown_under
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.records import MediaPart, Message, Sampling, adapter_names
from tests.trainers.adapters.rollouts import batch, two_groups, with_forks

OVER_IDS = sorted(set(adapter_names()) - {"trl", "verifiers"})
PLAIN = {"verl": {"form": "plain"}, "tinker": {"form": "plain"}, "datasets": {"form": "plain"}}


def changed(**fields):
    """Two groups whose step a-1 is otherwise."""
    groups = two_groups()
    for name, value in fields.items():
        setattr(groups.items[0].trajectories[0].steps[1], name, value)
    return groups


@pytest.mark.parametrize("name", OVER_IDS)
@pytest.mark.parametrize(
    ("fields", "said_so"),
    [
        ({"response_ids": None}, "step a-1 has no token ids"),
        ({"response_logprobs": None}, "step a-1 has no log-probabilities"),
        ({"response_logprobs": None, "logprob_space": None}, "step a-1 has no log-probabilities"),
        ({"response_logprobs": [-0.5, None]}, "step a-1 lacks the log-probability of a sampled token"),
        ({"response_logprobs": [-0.5]}, "step a-1 has 1 log-probabilities for 2 ids"),
        ({"response_mask": [1]}, "step a-1 has a mask of 1 for 2 ids"),
        ({"logprob_space": None}, r"step a-1 does not say in which space .*logprob_space\.raw"),
        ({"logprob_space": "processed", "sampling": Sampling(temperature=1.0, top_p=0.9)}, "step a-1 .* after top_p"),
        ({"metadata": {"prompt": "media"}}, "step a-1 has images"),
        ({"vocabulary": shown_under("v", [MediaPart("00" * 16, "image/png")])}, "step a-1 has images"),
        ({"prompt_messages": [Message("user", (MediaPart("00" * 16, "image/png"),))]}, "step a-1 has images"),
    ],
)
def test_steps_that_lack_something_are_named(name, fields, said_so):
    with pytest.raises(InvalidRequestError, match=said_so):
        changed(**fields).to(name, **PLAIN.get(name, {}))


def test_raw_log_probabilities_are_those_at_temperature_one():
    hot = changed(logprob_space="processed", sampling=Sampling(temperature=0.7))
    with pytest.raises(InvalidRequestError, match=r"step a-1 .* at temperature 0\.7, and raw ones are wanted"):
        hot.to("tinker", form="plain")
    with pytest.raises(InvalidRequestError, match="at temperature"):
        hot.to("verl", form="plain")  # One temperature for all rows.
    assert hot.to("prime_rl")[1]["temperatures"][0] == 0.7  # The second step is a row of its own.
    with pytest.raises(InvalidRequestError, match=r"a-0 is at temperature 1, and the trainer.s is 0\.5"):
        two_groups().to("areal", temperature=0.5)


@pytest.mark.parametrize("name", ["verl", "areal", "transfer_queue", "openrlhf", "slime", "skyrl", "nemo_rl", "trl"])
def test_masks_alone_take_no_parts_of_weights(name):
    with pytest.raises(InvalidRequestError, match="masks without weights"):
        with_forks().to(name, rows="tree", shared="mean", **PLAIN.get(name, {}))


@pytest.mark.parametrize("name", ["verl", "areal", "transfer_queue", "openrlhf", "slime", "skyrl", "trl"])
def test_absent_rewards_are_not_zero(name):
    groups = two_groups()
    groups.items[0].trajectories[0].trajectory.reward = None
    with pytest.raises(InvalidRequestError, match="trajectory a has no reward"):
        groups.to(name, credit="none", **PLAIN.get(name, {}))


def test_areal_needs_versions():
    with pytest.raises(InvalidRequestError, match="step a-1 does not say which weights"):
        changed(policy=None).to("areal")


def test_annotations_that_are_not_there_or_do_not_fit():
    with pytest.raises(InvalidRequestError, match="step a-0 has no annotation 'values'"):
        two_groups().to("verl", form="plain", annotations=["values"])
    groups = two_groups()
    groups.items[0].trajectories[0].annotations = {"a-0": {"values": [1.0]}}
    with pytest.raises(InvalidRequestError, match="'values' of step a-0 has 1 values for 3 ids"):
        groups.to("verl", form="plain", annotations=["values"])


def test_rows_that_do_not_fit_are_not_cut():
    with pytest.raises(InvalidRequestError, match=r"a row has 7 ids where 5 fit \(at response_length\). Raise resp"):
        two_groups().to("verl", form="plain", response_length=5)
    with pytest.raises(InvalidRequestError, match=r"a row has 4 ids where 3 fit \(at prompt_length\)"):
        two_groups().to("verl", form="plain", prompt_length=3)


def test_messages_that_are_not_there():
    with pytest.raises(InvalidRequestError, match="step c-0 has no messages"):
        two_groups().to("verifiers", form="plain")
    with pytest.raises(InvalidRequestError, match="step c-0 has no messages"):
        two_groups().to("trl", trainer="kto")
    with pytest.raises(InvalidRequestError, match="preferences are pairs"):
        two_groups().to("trl", trainer="dpo")
    with pytest.raises(InvalidRequestError, match="no trainer of TRL is called 'step'"):
        batch({}, unit="step", method="step").to("trl")
    runs = two_groups().items[0].trajectories[:1]
    with pytest.raises(InvalidRequestError, match="step a-0 has no reward 'good'"):
        batch({"a": runs}, unit="trajectory").to("trl", trainer="prm", step_reward="good")


@pytest.mark.parametrize("name", adapter_names())
def test_options_are_checked_by_name(name):
    with pytest.raises(ConfigError, match=rf"adapter {name}: .*padd"):
        batch({"g": []}).to(name, padd=1)
    with pytest.raises(ConfigError, match=f"adapter {name}: "):
        batch({"g": []}).to(name, logprobs="all")


@pytest.mark.parametrize("name", sorted(set(adapter_names()) - {"trl"}))
def test_a_batch_without_rows_is_one_without_rows(name):
    found = batch({}).to(name, **PLAIN.get(name, {}))
    sizes = [len(found)] if isinstance(found, list) else []
    if isinstance(found, dict):
        tensors = found.get("batch", found)
        sizes = [len(value) for value in tensors.values() if hasattr(value, "__len__") and not isinstance(value, dict)]
    assert set(sizes) <= {0}
