"""Every setting of every file is documented, with its default."""

from typing import Any

import msgspec
import pytest

from agentworld.agents.definition import CommandAgent, LoopAgent
from agentworld.agents.run_config import RunConfig, Selection
from agentworld.config import (
    ChannelSettings,
    LabelScheme,
    MixSettings,
    ModelSettings,
    SamplingOverrides,
    ServeSettings,
    TracesSettings,
)
from agentworld.credit import CreditSpec
from agentworld.curation.running import CurateSettings, ReviewSettings
from agentworld.records import BatchSpec, Sampling
from agentworld.tasks.definition import ReadyDefinition
from agentworld.tasks.jsonl import JsonlDefinition
from agentworld.trainers.evaluating import EvaluationSettings
from agentworld.trainers.job import TrainJob
from agentworld.trainers.lora import LoraSettings
from agentworld.trainers.publish import PublishTo
from agentworld.trainers.scorers import TeacherSettings
from agentworld.trainers.settings import TrainSettings
from tests.docs.pages import REFERENCE, codes, section, table_of

PAGE = REFERENCE / "configuration.md"
TABLES: list[tuple[str, int, Any]] = [
    ("agentworld serve", 0, ServeSettings),
    ("agentworld serve", 1, ModelSettings),
    ("Channels", 0, ChannelSettings),
    ("Mixed turns", 0, MixSettings),
    ("Labels", 0, LabelScheme),
    ("Traces", 0, TracesSettings),
    ("agentworld run", 0, RunConfig),
    ("Agents", 0, LoopAgent),
    ("Agents", 1, CommandAgent),
    ("Task sets", 0, JsonlDefinition),
    ("agentworld train", 0, TrainJob),
    ("agentworld train", 1, BatchSpec),
    ("agentworld train", 2, TrainSettings),
    ("agentworld train", 3, LoraSettings),
    ("agentworld train", 4, PublishTo),
    ("agentworld train", 5, EvaluationSettings),
    ("agentworld train", 6, TeacherSettings),
    ("agentworld train", 7, CreditSpec),
    ("agentworld curate run", 0, CurateSettings),
    ("agentworld curate run", 1, ReviewSettings),
]
# What a definition is and what it is called follow from the file.
IMPLIED = {"kind"}
FROM_THE_FILE = {"name"}


@pytest.mark.parametrize(("heading", "number", "struct"), TABLES, ids=[each[2].__name__ for each in TABLES])
def test_every_setting_is_documented_with_its_default(heading: str, number: int, struct: Any) -> None:
    rows = table_of(section(PAGE, heading), number)
    fields = {field.name: field for field in msgspec.structs.fields(struct)}
    assert set(rows) == set(fields) - IMPLIED
    for setting, row in rows.items():
        field = fields[setting]
        if setting in FROM_THE_FILE:
            continue
        assert (row[1] == "required") == field.required, setting
        if isinstance(field.default, bool):
            assert row[1] == str(field.default).lower(), setting
        elif isinstance(field.default, int | float):
            assert row[1] == str(field.default), setting
        elif isinstance(field.default, str):
            assert row[1].startswith(f"`{field.default}`"), setting


@pytest.mark.parametrize(
    ("heading", "struct"),
    [
        ("agentworld run", Selection),
        ("agentworld run", Sampling),
        ("Channels", SamplingOverrides),
        ("Task sets", ReadyDefinition),
    ],
)
def test_small_tables_are_named_in_words(heading: str, struct: Any) -> None:
    words = " ".join(codes(section(PAGE, heading)))
    for field in struct.__struct_fields__:
        assert field in words or field in IMPLIED, field
