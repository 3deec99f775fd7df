"""The pages on rewards: every kind and every setting with its default, and examples that run."""

import re

import msgspec
import pytest

from agentworld.rewards import Verdict
from agentworld.rewards.composition import Composition
from agentworld.rewards.functions import load_function
from agentworld.rewards.isolation.sandbox import Limits
from agentworld.rewards.judges.asking import JudgeKind
from agentworld.rewards.plugin import Plugin
from agentworld.rewards.protocol import EvaluatorKind
from agentworld.rewards.registry import KINDS, kind_class
from agentworld.rewards.rules.answer import AnswerRule
from tests.docs.pages import DOCS, REFERENCE, blocks, codes, section, table_of, without_fences
from tests.rewards.runs import group_of, run_of

PAGE = REFERENCE / "evaluators.md"
SHARED = [
    ("Evaluators", EvaluatorKind),
    ("Answers", AnswerRule),
    ("Judges", JudgeKind),
    ("Compositions", Composition),
    ("limits of a program", Limits),
    ("Functions", Plugin),
]


def own_fields(struct):
    """Settings that a class has and its bases have not."""
    bases = [base for base in struct.__mro__[1:] if issubclass(base, EvaluatorKind)]
    above = {field for base in bases for field in base.__struct_fields__}
    return {field.name: field for field in msgspec.structs.fields(struct) if field.name not in above}


def shown(field):
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, msgspec.Struct):
        return "see below"
    if value in (None, "", (), {}):
        return "none"
    return f"`{value}`" if isinstance(value, str) else str(value)


def check(heading, struct):
    fields = own_fields(struct)
    text = section(PAGE, heading)
    rows = table_of(text) if "|" in text else {}
    assert set(rows) == set(fields)
    for name, field in fields.items():
        if name != "name":
            assert rows[name][1] == shown(field), name


@pytest.mark.parametrize(("heading", "struct"), SHARED, ids=[struct.__name__ for _, struct in SHARED])
def test_shared_settings_are_documented_with_their_defaults(heading, struct):
    check(heading, struct)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_documented_with_its_settings(kind):
    struct = kind_class(kind)
    # What a kind sets anew, such as normalise's per_group, is told with the shared settings.
    check(kind, struct)


def test_the_guide_names_every_kind():
    named = set(codes(without_fences((DOCS / "rewards.md").read_text())))
    assert set(KINDS) <= named


def test_the_guide_names_every_layout():
    from agentworld.rewards.http_model import _PATHS

    assert set(_PATHS) <= set(codes(section(DOCS / "rewards.md", "Reward models")))


def test_the_examples_in_python_run():
    found = [block.text for block in blocks("python") if block.page.name == "rewards.md"]
    assert len(found) == 4
    names = {"__name__": "documented"}
    for text in found:
        exec(compile(text, "rewards.md", "exec"), names)
    assert names["verdicts"]["t1"].values == {"reward": 1.0}
    assert [record.source for record in names["records"]] == ["numeric"]
    assert names["calibration"].overall.accuracy == pytest.approx(2 / 3)
    assert names["report"].evaluators["numeric"].evaluated == 0
    assert names["polite"](run_of("yes please")) == 1.0
    assert names["shortest"](group_of("x", "y")) == {"t0": 1.0, "t1": 1.0}
    assert set(names["tried"](run_of("x")).values()) == {0.0}


def test_where_the_classes_are():
    for module, name in KINDS.values():
        assert load_function(f"agentworld.rewards.{module}:{name}")
    assert Verdict({}).details == {}


def test_the_guide_has_no_setting_that_is_not_there():
    """Names in code of the guide that look like settings are settings, or words of the examples."""
    known = {field for kind in KINDS for field in kind_class(kind).__struct_fields__}
    known |= set(Limits.__struct_fields__) | set(Plugin.__struct_fields__)
    for block in blocks("toml"):
        if block.page.name == "rewards.md":
            keys = re.findall(r"^(\w+) = ", block.text, re.MULTILINE)
            assert set(keys) - known - {"kind"} == set()
