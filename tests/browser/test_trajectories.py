"""The list of trajectories and one of them, as a person goes through them."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from agentworld.pool.keys import NewKey
from agentworld.records import NewTrajectory
from tests.browser.driving import play

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]


def asked(page):
    """What the address asks for."""
    return {name: value for name, [value] in parse_qs(urlsplit(page.url).query).items()}


def rows(page):
    return page.locator(".rows .row:not(.head)")


def test_a_filter_is_completed_corrected_and_saved(server, visit):
    page = visit(server, "/trajectories").page
    search = page.get_by_role("combobox", name="Filter")
    search.press_sequentially("rea")
    page.get_by_role("option").filter(has_text="readiness").first.wait_for()
    search.press("ArrowDown")
    search.press("Enter")
    assert search.input_value() == "readiness "
    search.press_sequentially("== 'ready' and rewrad > 0")
    wrong = page.get_by_role("alert")
    wrong.get_by_text("rewrad").first.wait_for()
    assert wrong.locator("mark").inner_text() == "r"
    assert asked(page) == {}
    search.fill("readiness == 'ready' and reward > 0")
    page.get_by_text("2 shown").wait_for(state="hidden")
    search.press("Enter")
    page.get_by_text("2 shown").wait_for()
    page.get_by_role("button", name="Reward", exact=True).click()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Agent").uncheck()
    page.get_by_role("columnheader", name="Agent").wait_for(state="hidden")
    state = asked(page)
    assert (state["where"], state["sort"]) == ("readiness == 'ready' and reward > 0", "-reward")
    assert "agent" not in state["columns"].split(",")
    page.get_by_text("Saved", exact=True).click()
    page.get_by_label("Name for this filter").fill("good")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="good", exact=True).wait_for()
    page.goto(f"{server.url}/dashboard/trajectories")
    page.get_by_text("4 shown").wait_for()
    page.get_by_text("Saved", exact=True).click()
    page.get_by_role("button", name="good", exact=True).click()
    page.get_by_text("2 shown").wait_for()
    assert asked(page) == state
    handle = page.get_by_role("separator", name="Width of Status")
    before = int(handle.get_attribute("aria-valuenow"))
    handle.press("ArrowRight")
    assert page.locator(f"[aria-label='Width of Status'][aria-valuenow='{before + 10}']").count() == 1


def test_facets_count_and_narrow(server, visit):
    server.pool.create_trajectory(NewTrajectory(trajectory_id="other", channel="val", agent="it's"))
    page = visit(server, "/trajectories?facets=on").page
    facets = page.get_by_label("Facets")
    facets.get_by_text("All 5 that match are counted").wait_for()
    facets.get_by_role("button", name=re.compile("^it's")).click()
    page.get_by_text("1 shown").wait_for()
    assert asked(page)["where"] == "agent == 'it\\'s'"
    facets.get_by_text("All 1 that match").wait_for()
    facets.get_by_role("button", name=re.compile("^it's"), pressed=True).click()
    page.get_by_text("5 shown").wait_for()


def test_many_are_labelled_excluded_exported_frozen_and_deleted(server, visit):
    page = visit(server, "/trajectories").page
    rows(page).nth(3).wait_for()
    grid = page.get_by_role("grid")
    grid.focus()
    grid.press("x")
    grid.press("j")
    grid.press("x")
    page.get_by_text("2 chosen").wait_for()
    chosen = [each.trajectory_id for each in server.pool.list_trajectories(order="newest", limit=2).items]
    told = page.get_by_label("Actions on many").get_by_role("status")
    page.get_by_role("button", name="Label", exact=True).click()
    page.get_by_label("Label", exact=True).fill("quality")
    page.get_by_label("Value", exact=True).fill("good")
    page.keyboard.press("Enter")
    told.get_by_text("Labelled 2").wait_for()
    assert [server.pool.get_trajectory(name).labels for name in chosen] == [{"quality": "good"}] * 2
    page.get_by_role("button", name="Exclude", exact=True).click()
    page.get_by_label("Why").fill("looped")
    page.keyboard.press("Enter")
    told.get_by_text("Excluded 2").wait_for()
    assert {server.pool.get_trajectory(name).readiness for name in chosen} == {"excluded"}
    page.get_by_role("button", name="Take back").click()
    told.get_by_text("Took decisions back of 2").wait_for()
    assert {server.pool.get_trajectory(name).readiness for name in chosen} == {"ready"}
    with page.expect_download() as downloaded:
        page.get_by_role("button", name="Export").click()
    lines = [json.loads(line) for line in downloaded.value.path().read_text().splitlines()]
    assert [line["trajectory"]["trajectory_id"] for line in lines if "trajectory" in line] == chosen
    assert sum("step" in line and bool(line["step"]["response_ids"]) for line in lines) == 4
    page.get_by_role("button", name="Freeze a dataset").click()
    page.get_by_label("Name", exact=True).fill("kept")
    page.get_by_role("button", name="Freeze", exact=True).click()
    told.get_by_text("Frozen as").wait_for()
    [version] = server.pool.list_datasets().items
    assert version.name == "kept"
    assert [row.trajectory_id for row in server.pool.dataset_rows(version.version)] == sorted(chosen)
    server.pool.delete_dataset(version.version)
    page.get_by_role("button", name="Delete", exact=True).click()
    sure = page.get_by_label("Type 2 to delete them")
    assert page.get_by_role("button", name="Delete for good").is_disabled()
    sure.fill("2")
    sure.press("Enter")
    told.get_by_text("Deleted").wait_for()
    page.get_by_text("2 shown").wait_for()
    assert server.pool.list_trajectories().items[-1].trajectory_id not in chosen


def test_a_key_that_reads_is_told_what_it_may_not(serving, visit):
    server = serving(require_keys=True)
    admin = server.pool.create_key(NewKey(name="admin", scopes=("admin",))).secret
    reader = server.pool.create_key(NewKey(name="page", scopes=("read",))).secret
    play(server, key=admin)
    page = visit(server, "/trajectories?actions=on").page
    page.get_by_label("API key").fill(reader)
    page.keyboard.press("Enter")
    rows(page).first.locator(".check").click()
    page.get_by_text("1 chosen").wait_for()
    for name in ("Label", "Exclude", "Include", "Delete", "Freeze a dataset"):
        assert page.get_by_role("button", name=name, exact=True).is_disabled(), name
    assert page.get_by_role("button", name="Export").is_enabled()
