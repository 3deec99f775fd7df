import sys

import pytest

from agentworld.demo.services import Service, ServiceError, Services
from tests.alive import wait_gone


def service(tmp_path, code):
    return Service("thing", [sys.executable, "-c", code], tmp_path / "logs" / "thing.log")


def test_a_service_is_ready_once_it_prints_its_address(tmp_path):
    thing = service(
        tmp_path, "import time; print('starting'); print('at http://127.0.0.1:80', flush=True); time.sleep(60)"
    )
    try:
        assert thing.wait_ready(100) == "http://127.0.0.1:80"
        assert thing.alive
    finally:
        thing.stop()
    assert not thing.alive
    assert "starting" in thing.log.read_text()


def test_one_that_ends_early_says_where_its_output_is(tmp_path):
    thing = service(tmp_path, "raise SystemExit('no model')")
    with pytest.raises(ServiceError, match="the thing ended with code 1") as error:
        thing.wait_ready(100)
    thing.stop()
    assert str(thing.log) in error.value.hint
    assert "no model" in thing.log.read_text()


def test_stopping_ends_the_whole_group_though_it_ignores_requests(tmp_path):
    code = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(f'http://127.0.0.1:{child.pid}', flush=True)\n"
        "time.sleep(60)\n"
    )
    thing = service(tmp_path, code)
    child = int(thing.wait_ready(100).rsplit(":", 1)[1])
    thing.stop(grace=0.1)
    assert not thing.alive
    wait_gone(child)


def test_leaving_the_block_stops_every_service(tmp_path):
    with pytest.raises(KeyboardInterrupt), Services(tmp_path) as services:
        first = services.start(
            "first", "http.server", "--bind", "127.0.0.1", "0", environment={"PYTHONUNBUFFERED": "1"}
        )
        first.wait_ready(100)
        services.check()
        raise KeyboardInterrupt
    assert not first.alive
