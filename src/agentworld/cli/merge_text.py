"""What `agentworld merge` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from agentworld.cli import output

if TYPE_CHECKING:
    from agentworld.engines.tokenizer import TokenizerAdapter
    from agentworld.merge.costs import CostBound
    from agentworld.merge.results import MergeStats, MergeTree

KNOWN = ("pocket", "byte")  # tokenizers that open at once
SHOWN_ENDS = 3


class Texts:
    """Ids as text, where their vocabulary is known. `name`: of a tokenizer that is to be used."""

    def __init__(self, name: str | None, width: int) -> None:
        self._name = name
        self._width = width
        self._known: dict[str | None, TokenizerAdapter | None] = {}
        self.unknown: set[str] = set()
        if name is not None:
            self._open(name)  # One that is not there is told before anything is read.

    def of(self, ids: list[int], vocabulary: str | None) -> str:
        """The text, escaped and clipped; empty where it is not known what the ids stand for."""
        if not ids:
            return ""
        tokenizer = self._of_vocabulary(vocabulary)
        if tokenizer is None:
            return ""
        said = tokenizer.decode([each for each in ids if each < tokenizer.vocab_size])
        return output.clip(output.plain(said), self._width)

    def _of_vocabulary(self, vocabulary: str | None) -> TokenizerAdapter | None:
        if vocabulary not in self._known:
            # Images among the ids are named behind the vocabulary's own digest.
            digest = None if vocabulary is None else vocabulary.partition("+")[0]
            names = KNOWN if self._name is None else (self._name,)
            tokenizers = [self._open(name) for name in names]
            found = next((each for each in tokenizers if digest == each.digest.hex()), None)
            if found is None and self._name is not None:
                if vocabulary is None:
                    found = tokenizers[0]
                else:
                    self.unknown.add(vocabulary)
            self._known[vocabulary] = found
        return self._known[vocabulary]

    def _open(self, name: str) -> TokenizerAdapter:
        from agentworld.engines.tokenizer import load_tokenizer

        return load_tokenizer(name)


def show_stats(found: MergeStats, model: str | None) -> None:
    """The numbers, then packing and cost where they were asked for, then the units that share least."""
    whole = found.whole
    forks = [("forks", "none")]
    if whole.forks:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in whole.reasons.items())
        forks = [
            ("forks", f"{whole.forks:,}, {whole.branching:.1f} branches each, {whole.widest:,} at the widest"),
            ("because of", reasons),
        ]
    lines = [
        ("read", f"{found.source}: {output.count(whole.sequences, 'sequence')} in {output.count(found.units, 'unit')}"),
        ("tokens", f"{whole.total:,} flat, {whole.joined:,} with turns joined, {whole.unique:,} unique"),
        ("ratio", f"C {whole.ratio:.2f} ({whole.joined_ratio:.2f} of what is joined)"),
        ("apart", f"{found.apart:,} unique where each unit has a tree of its own"),
        ("sampled", f"{found.trained:,} tokens at {found.trained_unique:,} places"),
        ("depth", f"{output.count(whole.depth, 'token')}, {output.count(whole.leaves, 'path')}"),
        *forks,
    ]
    if found.packing is not None:
        packing = found.packing
        lines.append(
            (
                "packed",
                f"{output.count(packing.micro_batches, 'micro-batch', 'micro-batches')} of {packing.budget:,} tokens "
                f"(at least {packing.fewest:,}), {packing.tokens:,} computed, bound {packing.bound:,} "
                f"({packing.lost:.1%} more)",
            )
        )
        if packing.left_out:
            lines.append(("", f"{output.count(packing.left_out, 'sequence')} longer than that, not packed"))
    if found.cost is not None:
        lines += _cost_lines(found.cost, model or "")
    for name, text in lines:
        typer.echo(f"{name:<12}{output.plain(text)}")
    if found.units > 1:
        typer.echo("\nunits that share least")
        columns = ("unit", "sequences", "tokens", "unique", "C", "forks", "because of")
        rows = [
            (
                one.unit, one.sequences, f"{one.total:,}", f"{one.unique:,}", f"{one.ratio:.2f}", one.forks,
                ", ".join(f"{number} {reason}" for reason, number in one.reasons.items()),
            )
            for one in found.worst
        ]  # fmt: skip
        output.table(columns, rows, right=columns[1:6], whole=("unit",))
    _show_rest(found)


def show_tree(found: MergeTree, text: Texts) -> None:
    """A line a stretch; branches are indented below what they leave."""
    ratio = found.total / found.unique if found.unique else 1.0
    typer.echo(
        f"{output.plain(found.source)}: {output.count(found.sequences, 'sequence')}, "
        f"{found.total:,} tokens, {found.unique:,} unique, C {ratio:.2f}"
    )
    level: dict[int, int] = {}
    begun: set[int] = set()
    for node in found.nodes:
        is_branch = node.parent in begun and node.parent >= 0
        begun.add(node.parent)
        level[node.id] = level.get(node.parent, 0) + is_branch
        indent = "  " * level[node.id]
        parts = [f"{node.length:,}" + (f" x{node.sequences:,}" if node.sequences > 1 else "")]
        if node.reason is not None:
            parts.append(node.reason)
        if node.ending:
            more = f" and {node.ending - SHOWN_ENDS:,} more" if node.ending > SHOWN_ENDS else ""
            parts.append(f"[{', '.join(node.ends[:SHOWN_ENDS])}{more}]")
        said = text.of(node.token_ids, node.vocabulary)
        if said and node.length > len(node.token_ids) and not said.endswith("…"):
            said += "…"
        typer.echo(indent + output.plain("  ".join(parts)) + (f"  {said}" if said else ""))
        if node.hidden:
            typer.echo(
                f"{indent}  … {output.count(node.hidden, 'stretch', 'stretches')}, {node.hidden_tokens:,} tokens"
            )
    left = found.nodes_in_all - len(found.nodes)
    if left:
        typer.echo(
            f"{output.count(left, 'stretch', 'stretches')} left out; --max-nodes and --depth show more.", err=True
        )
    for vocabulary in sorted(text.unknown):
        typer.echo(f"Ids of the vocabulary {output.plain(vocabulary)} are not of this tokenizer.", err=True)
    _show_rest(found)


def _cost_lines(cost: CostBound, model: str) -> list[tuple[str, str]]:
    parts = []
    for name in ("linear", "attention", "vocabulary"):
        flat, merged = getattr(cost.flat, name), getattr(cost.merged, name)
        parts.append(f"{name} {flat:.3g} to {merged:.3g}")
    return [("bound", f"{cost.speedup:.2f} times faster for {model}: {', '.join(parts)} operations")]


def _show_rest(found: MergeStats | MergeTree) -> None:
    """What was not read, on the error stream."""
    left = [
        (found.excluded, "excluded by curation"),
        (found.without_ids, "without ids"),
        (found.missing, "not there any more"),
    ]
    said = ", ".join(f"{number:,} {why}" for number, why in left if number)
    if said:
        typer.echo(f"Steps left out: {said}.", err=True)
    if found.stopped is not None:
        more = "--max-tokens reads more" if found.stopped == "tokens" else "narrow it with --where"
        typer.echo(f"Reading stopped at its most {found.stopped}: these numbers are of a part; {more}.", err=True)
