"""What a key that is bound to one channel may do of dataset versions: those alone that were selected of its channel."""

from __future__ import annotations

import msgspec

from agentworld.api.bound_curation import BoundCuration, whole
from agentworld.errors import NotFoundError
from agentworld.pool.protocol import Page
from agentworld.records import DatasetRow, DatasetVersion, Selection


class BoundDatasets(BoundCuration):
    """The part of a bound pool that is about versions. A trajectory's key sees none."""

    def own_selection(self, selection: Selection) -> Selection:
        """The selection within the channel of the key; ForbiddenError where it asks for another, or has none."""
        channel = self._grant.channel
        if self._grant.trajectory_id is not None or channel is None:
            raise whole(self._grant, "a whole channel")
        if selection.channel not in (None, Selection().channel):
            self._grant.check_channel(selection.channel, "what is selected")
        return msgspec.structs.replace(selection, channel=channel)

    def get_dataset(self, version: str) -> DatasetVersion:
        """See Pool. NAME alone is the one that was frozen last, and not there where that is another channel's."""
        found = self._pool.get_dataset(version)
        if not self._sees(found):
            raise NotFoundError(f"no version {version!r}", path="version")
        return found

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
