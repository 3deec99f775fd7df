import sys
import types
from importlib.metadata import EntryPoint

import msgspec
import numpy as np
import pytest

from agentworld.credit import CreditSpec, TokenCredits, credit_by_name, credit_method, credit_names, registry
from agentworld.errors import ConfigError, InvalidRequestError
from agentworld.trainers.job import read_job
from tests.credit.builders import rollout


@pytest.fixture(autouse=True)
def _only_own(monkeypatch):
    credit_names()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))


class Factor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    factor: float = 2.0


def times(rollouts, parameters):
    return [np.full(len(each), each.need_reward() * parameters.factor) for each in rollouts]


def test_a_method_of_ones_own_by_its_name():
    credit_method("times", Factor)(times)
    assert "times" in credit_names()
    [found] = credit_by_name("times", factor=3)([rollout(2.0, 2)])
    assert found.tolist() == [6.0, 6.0]


def test_a_method_by_module_and_entry_point(monkeypatch):
    module = types.ModuleType("credits_of_others")
    module.times = credit_method("times_of_others", Factor)(times)
    module.plain = times
    monkeypatch.setitem(sys.modules, "credits_of_others", module)
    monkeypatch.setattr(registry, "_METHODS", {})
    assert credit_by_name("credits_of_others:times").parameters.factor == 2.0
    points = [EntryPoint(name="theirs", value="credits_of_others:times", group=registry.ENTRY_POINTS)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points if group == registry.ENTRY_POINTS else [])
    assert "theirs" in credit_names()
    assert credit_by_name("theirs", factor=1.5).parameters.factor == 1.5
    with pytest.raises(ConfigError, match="is no credit method"):
        credit_by_name("credits_of_others:plain")
    for name in ("credits_of_others:absent", "no_such_module_anywhere:times", ":times"):
        with pytest.raises(ConfigError, match="cannot be loaded"):
            credit_by_name(name)


def test_what_is_unknown_is_named_with_what_was_meant():
    with pytest.raises(ConfigError) as error:
        credit_by_name("gigppo")
    assert (error.value.path, error.value.hint) == ("method", "Did you mean gigpo?")
    with pytest.raises(ConfigError) as error:
        credit_by_name("zzz")
    assert error.value.hint.startswith("Known: discounted, gae")
    with pytest.raises(ConfigError) as error:
        credit_by_name("gigpo", omga=1.0)
    assert error.value.hint == "Did you mean omega?"
    for name, wrong in (("gigpo", {"gamma": 1.5}), ("gae", {"lam": -0.1}), ("last", {"fork": "sum"})):
        with pytest.raises(ConfigError) as error:
            credit_by_name(name, **wrong)
        assert error.value.path == f"$.{next(iter(wrong))}"


def test_a_name_is_taken_once():
    with pytest.raises(ConfigError, match="already"):
        credit_method("gigpo")(times)

    def gigpo(rollouts, parameters):
        return times(rollouts, parameters)

    gigpo.__qualname__ = "gigpo"  # as of a function at the top of another module
    with pytest.raises(ConfigError, match="already"):
        credit_method("gigpo")(gigpo)


@pytest.mark.parametrize(
    "gives",
    [
        lambda rollouts: [],
        lambda rollouts: [np.zeros(1) for _ in rollouts],
        lambda rollouts: [np.full(2, np.nan) for _ in rollouts],
        lambda rollouts: TokenCredits([[np.zeros(1)] for _ in rollouts]),
        lambda rollouts: TokenCredits([[np.zeros(1), np.zeros(2)] for _ in rollouts]),
    ],
)
def test_what_does_not_fit_the_rollouts_is_refused(gives):
    credit_method("broken")(lambda rollouts, parameters: gives(rollouts))
    with pytest.raises(InvalidRequestError, match="credit broken gave"):
        credit_by_name("broken")([rollout(1.0, 2)])


def test_a_training_job_names_it(tmp_path):
    def job(credit):
        file = tmp_path / "job.toml"
        file.write_text(f'pool = "sqlite:///p.db"\nmodel = "pocket"\n[batch]\n[settings]\nmethod = "grpo"\n{credit}')
        return read_job(file).settings.credit_spec

    assert job("") == CreditSpec()
    found = job('[settings.credit]\nmethod = "gigpo"\nstate = "observation"\nparameters = {omega = 0.5}\n')
    assert (found.method, found.state, found.rule().parameters.omega) == ("gigpo", "observation", 0.5)
    for text, says in (
        ('[settings.credit]\nmethod = "gigppo"\n', "no credit method 'gigppo'"),
        ('[settings.credit]\nmethod = "gigpo"\nparameters = {omga = 1}\n', "omga"),
        ('[settings.credit]\nmethods = "gigpo"\n', "methods"),
    ):
        with pytest.raises(ConfigError, match=says) as error:
            job(text)
        assert error.value.hint.startswith("Did you mean")


def test_names_of_trainers_lead_to_the_credit_that_they_take():
    with pytest.raises(ConfigError) as caught:
        credit_by_name("grpo")
    assert caught.value.hint == "Did you mean group_relative?"
    with pytest.raises(ConfigError) as caught:
        credit_by_name("uniform", gamma=2)
    assert "It has no fields: leave it out" in str(caught.value.hint)
