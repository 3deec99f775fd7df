"""Counters of several workers, read while one of them begins to count."""

from pathlib import Path

import pytest

from agentworld.api.metrics import SHARED_FOLDER
from tests.api.serving import Serving


def test_a_worker_that_begins_to_count_takes_the_counters_from_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))
    # As the library has them between making and filling them.
    for kind in ("counter", "histogram", "gauge_livesum"):
        (tmp_path / f"{kind}_{2**22 + 1}.db").touch()
    with Serving() as running:
        status, _, body = running.send("GET", "/metrics")
        assert status == 200
        assert "agentworld_pool_steps" in (body if isinstance(body, str) else body.decode())
