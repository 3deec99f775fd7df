"""docs/exports.md has every layout, option and reason, and nothing else."""

import re

from agentworld.curation.exports import known_layouts
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.report import REASONS
from tests.docs.pages import DOCS, codes, section, table_of

PAGE = DOCS / "exports.md"


def test_every_layout_is_described_with_its_columns() -> None:
    there = known_layouts()
    assert re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE) == list(there)
    for name, layout in there.items():
        text = section(PAGE, name)
        assert f"--format {name} " in text
        said = set(codes(text))
        for style in layout.styles or (None,):
            columns = set(layout.columns(ExportOptions(style=style)))
            if name == "steps":
                columns = {each for each in columns if each.startswith("trajectory_") and each != "trajectory_id"}
            assert columns <= said, name
            if style is not None:
                assert style in said


def test_every_option_is_said_to_be_of_the_layouts_that_take_it() -> None:
    rows = table_of(section(PAGE, "Options"))
    assert set(rows) == set(ExportOptions.__struct_fields__)
    for option, row in rows.items():
        taking = {name for name, layout in known_layouts().items() if option in layout.takes}
        assert set(row[1].split(", ")) == taking, option


def test_every_reason_is_explained() -> None:
    rows = table_of(section(PAGE, "What is left out"))
    assert {reason: row[1] for reason, row in rows.items()} == {
        reason: f"{means[0].upper()}{means[1:]}." for reason, means in REASONS.items()
    }
