"""Dataset versions as files that trainers load."""

from agentworld.curation.exports.atif import to_atif
from agentworld.curation.exports.export import export_dataset
from agentworld.curation.exports.options import ExportOptions
from agentworld.curation.exports.registry import Layout, Origin, Row, Work, known_layouts, layout, origin_of
from agentworld.curation.exports.report import ExportedSplit, ExportReport

__all__ = [
    "ExportOptions",
    "ExportReport",
    "ExportedSplit",
    "Layout",
    "Origin",
    "Row",
    "Work",
    "export_dataset",
    "known_layouts",
    "layout",
    "origin_of",
    "to_atif",
]
