"""Trajectories whose replies are nearly those of an earlier one: MinHash, found by bands, confirmed by signatures."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec
import numpy as np
import numpy.typing as npt

from agentworld.curation.checks.finding import Finding
from agentworld.curation.checks.minhash import PERMUTATIONS, Signature, band_key_table, band_keys, text_signature
from agentworld.curation.checks.reading import Run
from agentworld.curation.checks.registry import check
from agentworld.curation.checks.saved import StateError, pack, unpack
from agentworld.curation.checks.settings import CheckSettings
from agentworld.curation.checks.words import Hashes
from agentworld.records import BatchTrajectory

_NAME = "near_duplicate"
_VERSION = "1"
_LAYOUT = f"{_NAME}@1"
_MOST_IN_A_BAND = 32  # texts that share one band; further ones are not candidates by it


class SimilarTexts:
    """Texts under names, each looked up among those before it that were not like another.

    A text that is like an earlier one is not remembered: chains of likeness end at their first text. Over `most`
    texts, the oldest quarter is forgotten. 256 bytes of signature for each text, and a number for each band.
    """

    def __init__(self, threshold: float, shingle: int, most: int, shortest: int) -> None:
        self.threshold, self.shingle, self.most, self.shortest = threshold, shingle, most, shortest
        self._signatures: npt.NDArray[np.uint16] = np.zeros((64, PERMUTATIONS), np.uint16)
        self._names: list[str] = []
        self._salts: list[int] = []
        self._place: dict[str, int] = {}
        self._bands: dict[int, int | list[int]] = {}
        # What was restored is looked up in sorted keys, which are made 20 times faster than a dict is filled.
        self._old_keys: Hashes = np.empty(0, np.uint64)
        self._old_places: npt.NDArray[np.int64] = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, text: str, partition: str = "") -> tuple[str, float] | None:
        """The earlier text of the partition that is most like this one, and how much; None where none is like it."""
        one = text_signature(text, self.shingle, self.shortest)
        there = self._place.get(name)
        if there is not None:
            if one is not None and np.array_equal(one, self._signatures[there]):
                return None
            del self._place[name]
            self._names[there] = ""  # Is in its bands still, and is passed over.
        if one is None:
            return None
        salt = _salt(partition)
        keys = band_keys(one, self.threshold, salt)
        best = self._best(one, keys)
        if best is not None:
            return best
        if len(self._names) >= self.most:
            self._forget()
        self._remember(name, salt, one, keys)
        return None

    def _best(self, one: Signature, keys: list[int]) -> tuple[str, float] | None:
        candidates: set[int] = set()
        for key in keys:
            found = self._bands.get(key)
            if found is not None:
                candidates.update((found,) if isinstance(found, int) else found)
        candidates.update(self._old(keys))
        places = sorted(place for place in candidates if self._names[place])
        if not places:
            return None
        alike = np.count_nonzero(self._signatures[places] == one, axis=1) / PERMUTATIONS
        at = int(alike.argmax())
        return (self._names[places[at]], float(alike[at])) if alike[at] >= self.threshold else None

    def _old(self, keys: list[int]) -> Iterator[int]:
        """The candidates among those that were restored."""
        if not len(self._old_keys):
            return
        wanted = np.array(keys, np.uint64)
        begins = np.searchsorted(self._old_keys, wanted, "left")
        ends = np.minimum(np.searchsorted(self._old_keys, wanted, "right"), begins + _MOST_IN_A_BAND)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if begin < end:
                yield from self._old_places[begin:end].tolist()

    def _remember(self, name: str, salt: int, one: Signature, keys: list[int]) -> None:
        place = len(self._names)
        if place == len(self._signatures):
            self._signatures = np.concatenate([self._signatures, np.zeros_like(self._signatures)])
        self._signatures[place] = one
        self._names.append(name)
        self._salts.append(salt)
        self._place[name] = place
        for key in keys:
            found = self._bands.get(key)
            if found is None:
                self._bands[key] = place
            elif isinstance(found, int):
                self._bands[key] = [found, place]
            elif len(found) < _MOST_IN_A_BAND:
                found.append(place)

    def _forget(self) -> None:
        """Leave the newest three quarters, without what was replaced."""
        self.restore(*self.kept(self.most - max(self.most // 4, 1)))

    def kept(self, most: int | None = None) -> tuple[list[str], list[int], npt.NDArray[np.uint16]]:
        """Names, salts and signatures of the newest `most` texts."""
        places = [place for place, name in enumerate(self._names) if name]
        places = places[max(0, len(places) - most) :] if most is not None else places
        return [self._names[at] for at in places], [self._salts[at] for at in places], self._signatures[places]

    def restore(self, names: list[str], salts: list[int], signatures: npt.NDArray[np.uint16]) -> None:
        """Hold exactly these."""
        self._signatures = np.zeros((max(64, len(names)), PERMUTATIONS), np.uint16)
        self._signatures[: len(names)] = signatures
        self._names, self._salts, self._bands = list(names), list(salts), {}
        self._place = {name: place for place, name in enumerate(names)}
        keys = band_key_table(self._signatures[: len(names)], self.threshold, salts)
        order = np.argsort(keys, axis=None, kind="stable")
        self._old_keys, self._old_places = keys.ravel()[order], order // keys.shape[1]


def _salt(partition: str) -> int:
    data = partition.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class _State(msgspec.Struct):
    shingle: int
    names: list[str]
    salts: list[int]
    signatures: bytes


@check(
    _NAME,
    scope="pool",
    version=_VERSION,
    values="estimated Jaccard similarity to the earlier trajectory, from 0 to 1",
    says="What the model wrote in all replies has nearly the same runs of `shingle` words as an earlier trajectory of "
    "the channel, which the evidence names.",
    fails="The estimate of 128 minima has a standard deviation of up to 0.045, so pairs near the threshold `similar` "
    "are told apart by chance, and about 1 in 8 pairs at it shares no band. Takes formulaic replies for copies. Order "
    "of runs and prompts are not compared. Texts under `shortest_text` words are not looked at; the last `remembered` "
    "are searched.",
)
class NearDuplicates:
    """`SimilarTexts` over the replies of trajectories, channel by channel."""

    def __init__(self, settings: CheckSettings | None = None) -> None:
        settings = settings or CheckSettings()
        self._texts = SimilarTexts(settings.similar, settings.shingle, settings.remembered, settings.shortest_text)
        self._found: dict[str, Finding] = {}

    @classmethod
    def load(cls, state: bytes, settings: CheckSettings | None = None) -> NearDuplicates:
        """Go on from a saved state; StateError where it was made with other runs of words."""
        loaded = cls(settings)
        saved = unpack(_LAYOUT, state, _State)
        whole = len(saved.names) == len(saved.salts) and len(saved.signatures) == 2 * PERMUTATIONS * len(saved.names)
        if saved.shingle != loaded._texts.shingle or not whole:
            raise StateError(
                "the state holds signatures of other runs of words, or is damaged",
                path="state",
                hint="Run the checks over everything again",
            )
        signatures = np.frombuffer(saved.signatures, "<u2").reshape(-1, PERMUTATIONS).astype(np.uint16)
        loaded._texts.restore(saved.names, saved.salts, signatures)
        return loaded

    def add(self, run: BatchTrajectory | Run) -> None:
        """Take in one trajectory; again under its id replaces it."""
        name = run.trajectory.trajectory_id
        text = "\n".join(turn.said for turn in Run.of(run).kept)
        found = self._texts.add(name, text, run.trajectory.channel)
        self._found.pop(name, None)
        if found is not None:
            of, alike = found
            value = round(alike, 3)
            evidence = {"of": of, "similarity": value}
            self._found[name] = Finding(
                check=_NAME, version=_VERSION, trajectory_id=name, value=value, evidence=evidence
            )

    def result(self) -> list[Finding]:
        """Those like an earlier one among those added since the last call."""
        found, self._found = list(self._found.values()), {}
        return found

    def save(self) -> bytes:
        """The state, about 300 bytes for each text that is remembered."""
        names, salts, signatures = self._texts.kept()
        return pack(_LAYOUT, _State(self._texts.shingle, names, salts, signatures.astype("<u2").tobytes()))
