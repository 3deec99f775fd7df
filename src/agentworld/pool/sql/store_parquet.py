"""Export and import as Parquet; see agentworld.pool.parquet."""

from __future__ import annotations

from pathlib import Path

from agentworld.pool.keeping.records import Progress, no_progress
from agentworld.pool.parquet.manifest import Imported, Manifest
from agentworld.pool.sql.append import Appender
from agentworld.pool.sql.store_keeping import KeepingMethods


class ParquetMethods(KeepingMethods):
    """`_appender`: the store's own, so that its caches know what an import stores."""

    _appender: Appender

    def export_parquet(
        self,
        folder: Path,
        *,
        where: str | None = None,
        channel: str | None = None,
        dataset: str | None = None,
        progress: Progress = no_progress,
    ) -> Manifest:
        """See Pool."""
        from agentworld.pool.parquet.export import write_export

        pages = self.list_trajectories
        return write_export(
            self._database,
            pages,
            folder,
            where=where,
            channel=channel,
            dataset=dataset,
            media=self.get_media,
            progress=progress,
        )

    def import_parquet(self, folder: Path, *, progress: Progress = no_progress) -> Imported:
        """See Pool."""
        from agentworld.pool.parquet.load import read_export

        return read_export(
            self._database, self._writer, self._appender, folder, media=self.put_media, progress=progress
        )
