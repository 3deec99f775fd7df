"""The card of an export: a README.md that says what it is, and that `datasets` reads its files by."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from agentworld.curation.datasets.provenance import PROVENANCE
from agentworld.curation.exports.columns import Kind, card_feature, features
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.report import ExportReport, reasons
from agentworld.errors import ConfigError
from agentworld.records import DatasetVersion

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_MEANS: dict[str, str] = {
    "text": "text", "texts": "texts", "whole": "whole number", "real": "number", "flag": "true or false",
    "flags": "true or false, a list", "reals": "numbers", "json": "JSON", "objects": "JSON objects, a list",
    "turns": "JSON objects, a list for each step", "ids": "token ids", "labels": "token ids, -100 where no loss",
    "bits": "0 or 1 a token", "logprobs": "natural logarithms", "images": "images",
    "plain_messages": "messages", "plain_tools": "tools",
    "reward_model": "style and ground_truth", "extra_info": "split, index, task_id, trajectory_id",
    "about": "version, trajectory_id and step_ids that the row comes from",
}  # fmt: skip


def card(
    report: ExportReport,
    version: DatasetVersion,
    options: ExportOptions,
    columns: Mapping[str, Kind],
    license: str | None,
    as_it_is: Collection[str] = (),
) -> str:
    """The text of README.md. What others wrote in it (names, queries, notes) is data, never markup. `as_it_is`: see
    Layout.
    """
    body = _body(report, version, options, columns, license, as_it_is)
    return f"---\n{_front_matter(report, columns, license)}---\n\n{body}"


def check_license(license: Any) -> None:
    """ConfigError where it is no text that a card can hold."""
    if not isinstance(license, str):
        raise ConfigError(f"a license is a text, not {license!r}", path="license", hint="Give it as in cc-by-4.0")
    try:
        license.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "the license has half a character in it", path="license", hint="Give it as in cc-by-4.0"
        ) from None


def code(text: str) -> str:
    """A text as code in Markdown, on one line, whatever is in it."""
    plain = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in text
    )
    runs = [len(run) for run in re.findall("`+", plain)]
    fence = "`" * (max(runs, default=0) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") or not plain else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _front_matter(report: ExportReport, columns: Mapping[str, Kind], license: str | None) -> str:
    """YAML, all of whose values are written as JSON, which YAML reads."""
    size = next((name for most, name in _SIZES if report.rows < most), "n>1M")
    plain = {name: kind for name, kind in columns.items() if not kind.startswith("plain_")}
    found: dict[str, Any] = {} if license is None else {"license": license}
    found |= {"tags": ["agentworld", f"agentworld-{report.layout}"], "size_categories": [size]}
    if report.file_format == "json":
        return _yaml(found)  # documents, which have no columns
    found |= {
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": split, "path": f"data/{split}-*.{report.file_format}"}
                    for split, each in report.splits.items()
                    if each.rows
                ],
            }
        ],
    }
    if len(plain) == len(columns):  # The shape of plain tools is in their files.
        found["dataset_info"] = {
            "features": [{"name": name, **card_feature(one)} for name, one in features(plain).items()]
        }
    return _yaml(found)


def _yaml(values: Mapping[str, Any]) -> str:
    return "".join(f"{name}: {_yaml_value(value)}\n" for name, value in values.items())


def _yaml_value(value: Any) -> str:
    """As JSON, but with characters as themselves: JSON escapes those beyond 16 bits by halves, which YAML refuses."""
    plain = json.dumps(value, ensure_ascii=False)
    return "".join(one if one.isprintable() else _escape(ord(one)) for one in plain)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def _body(
    report: ExportReport,
    version: DatasetVersion,
    options: ExportOptions,
    columns: Mapping[str, Kind],
    license: str | None,
    as_it_is: Collection[str],
) -> str:
    selection, made = version.selection, datetime.fromtimestamp(version.created_at, UTC)
    asked = {
        name: value
        for name, value in msgspec.to_builtins(options).items()
        if value != msgspec.to_builtins(ExportOptions())[name]
    }
    lines = [
        f"# {code(version.name)}",
        "",
        f"Version {code(version.version)} in the layout {code(report.layout)}, exported by AgentWorld.",
        "",
        "| | |",
        "|---|---|",
        f"| digest | {code(version.digest)} |",
        f"| manifest | {code(version.manifest_digest)} |",
        f"| frozen | {made:%Y-%m-%d %H:%M:%S} UTC |",
        f"| selected | {selection.unit} of channel {_or_all(selection.channel)} |",
        f"| where | {_cell(selection.where) if selection.where else 'all'} |",
        f"| policies | {', '.join(_cell(f'{each.name} ({each.digest})') for each in version.policies) or 'none'} |",
        f"| parents | {', '.join(_cell(each) for each in version.parents) or 'none'} |",
        f"| code | AgentWorld {code(version.code_version)} |",
        f"| options | {_cell(json.dumps(asked)) if asked else 'none'} |",
        f"| license | {_cell(license) if license else 'not said: ask who holds the data'} |",
        "",
    ]
    if version.note:
        lines += [_cell(version.note), ""]
    lines += ["| split | rows | trajectories | left out |", "|---|---|---|---|"]
    for split, each in report.splits.items():
        frozen = next((count for name, count in version.splits.items() if split_name(name) == split), None)
        lines.append(
            f"| {code(split)} | {each.rows} | {frozen.rows if frozen else 0} | {sum(each.left_out.values())} |"
        )
    if any(report.left_out.values()):
        lines += ["", "Left out:", ""]
        lines += [
            f"- {count} {code(reason)}: {means or 'see its layout'}"
            for reason, count, means in reasons(report.left_out)
        ]
    if report.file_format == "json":
        lines += ["", f"Each file is a document; {code(f'agentworld import {report.layout} data')} reads them.", ""]
        return "\n".join(lines)
    lines += ["", "| column | holds |", "|---|---|"]
    lines += [
        f"| {code(name)} | {_MEANS[kind]}{'; not frozen' if name in as_it_is else ''} |"
        for name, kind in columns.items()
    ]
    if as_it_is:
        lines += [
            "",
            "A column that is not frozen holds what the pool said when this was exported: it is under no digest of the "
            "version, and another export may have another value.",
        ]
    lines += [
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'data = load_dataset("path/to/this/folder")',
        "```",
        "",
        f"Where a row comes from stands in {code(PROVENANCE)}, which trainers pass over; "
        f"`agentworld dataset trace` follows it to the call of the agent.",
        "",
    ]
    return "\n".join(lines)


def split_name(split: str) -> str:
    """A split as files and loaders name it: letters, digits and underscores."""
    return re.sub(r"\W", "_", split, flags=re.ASCII)


def _cell(text: str) -> str:
    """Code in a table's cell, where a bar would end it."""
    return code(text).replace("|", "\\|")


def _or_all(channel: str | None) -> str:
    return "any" if channel is None else _cell(channel)
