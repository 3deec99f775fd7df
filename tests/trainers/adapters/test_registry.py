"""Adapters are found by name among entry points, those of others too."""

import pytest

from agentworld.errors import ConfigError
from agentworld.pool.consumer import LeasedBatch
from agentworld.records import AdapterNeeds, adapt, adapter_by_name, adapter_names
from agentworld.trainers.adapters import SampleOptions, read_samples
from tests.trainers.adapters.rollouts import two_groups

ALL = {"areal", "datasets", "nemo_rl", "openrlhf", "prime_rl", "skyrl", "slime", "tinker", "torch", "transfer_queue",
       "trl", "verifiers", "verl"}  # fmt: skip


class Lengths:
    """An adapter as another package has it."""

    name = "lengths"
    says = "Lengths of rows"
    needs = AdapterNeeds()
    options = SampleOptions

    def convert(self, batch, options):
        return [len(row.ids) for row in read_samples(batch, options).rows]


LENGTHS, NOTHING = Lengths(), object()


class Point:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def load(self):
        module, _, attribute = self.value.partition(":")
        return getattr(__import__(module, fromlist=["x"]), attribute)


@pytest.fixture
def others(monkeypatch):
    points = [Point("lengths", f"{__name__}:LENGTHS"), Point("nothing", f"{__name__}:NOTHING"), Point("gone", "gone:X")]
    monkeypatch.setattr("agentworld.records.adapting.entry_points", lambda group: points)


def test_all_are_here_under_their_own_names():
    assert set(adapter_names()) >= ALL
    for name in ALL:
        adapter = adapter_by_name(name)
        assert adapter.name == name
        assert adapter.says
        assert "tokens" in adapter.needs.require


def test_those_of_others(others):
    assert adapt(two_groups(), "lengths") == [10, 10, 6, 5]
    assert two_groups().to("lengths", rows="step", credit="none") == [6, 10, 6, 10, 6, 5]


def test_a_leased_batch_and_a_shard_of_it_go_the_same_way(others):
    leased = LeasedBatch(None, two_groups())
    assert leased.to("lengths") == [10, 10, 6, 5]
    assert leased.shard(1, 2).to("lengths") in ([10, 10], [6, 5])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("length", "no adapter 'length'.*Did you mean lengths.*Installed: gone, lengths, nothing"),
        ("gone", "'gone' cannot be loaded: No module named 'gone'"),
        ("nothing", "NOTHING is no adapter"),
    ],
)
def test_what_cannot_be_used_says_why(others, name, message):
    with pytest.raises(ConfigError, match=message):
        two_groups().to(name)
