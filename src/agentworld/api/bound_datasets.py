"""What a key that is bound to one channel may do of dataset versions: those alone that were selected of its channel."""

from __future__ import annotations

import msgspec

from agentworld.api.bound_curation import BoundCuration, whole
from agentworld.errors import ConflictError
from agentworld.pool.dataset_rules import no_version, several_versions, wanted_version
from agentworld.pool.protocol import Page
from agentworld.records import DatasetRow, DatasetVersion, Selection

_PAGE = 100


class BoundDatasets(BoundCuration):
    """The part of a bound pool that is about versions. A trajectory's key sees none."""

    def own_selection(self, selection: Selection, *, named: bool) -> Selection:
        """The selection within the channel of the key; ForbiddenError where it asks for another, or has none. `named`:
        whether the channel was said, or is the one that is taken where none is.
        """
        channel = self._grant.channel
        if self._grant.trajectory_id is not None or channel is None:
            raise whole(self._grant, "a whole channel")
        if named and selection.channel is not None:
            self._grant.check_channel(selection.channel, "what is selected")
        return msgspec.structs.replace(selection, channel=channel)

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool. NAME, and NAME@ with digits, are looked up among those of the key's channel."""
        wanted = wanted_version(version)
        if wanted.is_whole:
            found = self._pool.get_dataset(version)
            if not self._sees(found):
                raise no_version(wanted)
            return found
        matching: list[DatasetVersion] = []
        cursor: str | None = None
        while True:
            page = self.list_datasets(name=wanted.name, cursor=cursor, limit=_PAGE)
            matching += [one for one in page.items if one.digest.startswith(wanted.digits or "")]
            cursor = page.next_cursor
            if cursor is None or (matching and wanted.digits is None):
                break
        if not matching:
            raise no_version(wanted)
        if len(matching) > 1 and wanted.digits is not None:
            raise several_versions(wanted, [one.version for one in matching])
        return matching[0]

    def check_own(self, version: DatasetVersion) -> None:
        """ConflictError where the same rows are frozen under the same name already, but were selected of more."""
        if not self._sees(version):
            raise ConflictError(
                f"these rows are frozen as {version.version} already, of a selection that this key does not see",
                path="name",
                hint="Give it another name",
            )

    def list_datasets(
        self, *, name: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Page[DatasetVersion]:
        """See Pool. A page can be short, and still have a next_cursor to go on."""
        page = self._pool.list_datasets(name=name, cursor=cursor, limit=limit)
        return msgspec.structs.replace(page, items=[one for one in page.items if self._sees(one)])

    def dataset_rows(
        self, version: str, *, after: int = -1, limit: int = 100, split: str | None = None
    ) -> list[DatasetRow]:
        """See Pool."""
        return self._pool.dataset_rows(self.get_dataset(version).version, after=after, limit=limit, split=split)

    def _sees(self, version: DatasetVersion) -> bool:
        return self._grant.trajectory_id is None and version.selection.channel == self._grant.channel
