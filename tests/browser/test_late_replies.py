"""Who is quicker than the server: nothing that was pressed, written or has happened meanwhile is lost."""

from contextlib import contextmanager

import pytest

from agentworld.config import LabelScheme
from agentworld.records import CurationPolicy
from tests.browser.driving import play

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]
LABELS = (LabelScheme(name="quality", values=("good", "bad")),)


@contextmanager
def held(page, address, method):
    """Calls to an address do not reach the server before the block ends."""
    waiting, over = [], False

    def hold(route):
        if route.request.method == method and not over:
            waiting.append(route)
        else:
            route.fallback()

    page.route(address, hold)
    yield
    over = True
    for route in waiting:
        route.continue_()


@contextmanager
def refused(page, *addresses):
    """Calls to addresses are refused; those that a view asks anew, as somebody looks at it again, have been by then."""
    said = {"error": {"code": "not_now", "message": "Not at this time"}}
    for address in addresses:
        page.route(address, lambda route: route.fulfill(status=400, json=said))
    looks = "() => setInterval(() => window.dispatchEvent(new Event('visibilitychange')), 100)"
    first, *others = addresses
    with page.expect_response(first):
        looking = page.evaluate(looks)
    for address in others:
        with page.expect_response(address):
            pass
    yield
    page.unroute_all(behavior="wait")
    page.get_by_text("Not at this time").wait_for(state="hidden")
    page.evaluate("clearInterval", looking)


def reviewed(server):
    """Two that wait for a review."""
    rules = ("when reward >= 1 then review 'look'",)
    server.pool.set_curation(CurationPolicy(channel="train", name="look", rules=rules))


def test_a_label_counts_that_is_pressed_before_earlier_ones_have_come(serving, visit):
    server = serving(labels=LABELS)
    play(server, groups=2, rollouts=2)
    reviewed(server)
    page = visit(server, "/curation").page
    with held(page, "**/api/v1/feedback?*kind=label*", "GET"):
        page.get_by_label("You are").fill("kim")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="good 1").wait_for()
        page.get_by_role("heading", name="Reviews").click()
        page.keyboard.press("2")
    page.get_by_text("Labelled quality: bad").wait_for()
    page.get_by_role("button", name="bad 2", pressed=True).wait_for()


def test_reviews_are_taken_under_a_whole_name(serving, visit):
    server = serving(labels=LABELS)
    play(server, groups=2, rollouts=2)
    reviewed(server)
    page = visit(server, "/curation").page
    by = []
    page.on("request", lambda sent: by.append(sent.post_data_json["by"]) if sent.url.endswith("/claim") else None)
    page.get_by_label("You are").press_sequentially("kim")
    page.keyboard.press("Enter")
    page.get_by_label("Review", exact=True).locator(".facts a").wait_for()
    assert set(by) == {"kim"}
    # One of the two is left to others.
    assert server.pool.claim_review("lee") is not None


def test_what_is_still_on_its_way_is_what_u_takes_back(server, visit):
    page = visit(server, "/trajectories/run-0-0").page
    said = page.get_by_label("Said of the trajectory")
    said.get_by_label("You are").fill("zoe")
    said.get_by_role("button", name="Good").click()
    page.locator(".undo").get_by_text("Said that it is good").wait_for()
    with held(page, "**/api/v1/feedback", "POST"):
        said.get_by_role("button", name="Score").click()
        said.get_by_label("Score, a number").fill("4.5")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="run-0-0").click()
        page.keyboard.press("u")
    page.get_by_text("Taken back: Rated it 4.5").wait_for()
    found = [(one.name, one.value) for one in server.pool.list_feedback(trajectory_id="run-0-0").items]
    assert found == [("thumb", 1), ("score", 4.5), ("score", None)]


def test_a_form_that_was_opened_meanwhile_stays(server, visit):
    page = visit(server, "/trajectories/run-0-0?tab=facts").page
    said = page.get_by_label("Said of the trajectory")
    with held(page, "**/api/v1/feedback", "POST"):
        said.get_by_role("button", name="Good").click()
        said.get_by_role("button", name="Score").click()
        said.get_by_label("Score, a number").fill("4.5")
    page.locator(".undo").get_by_text("Said that it is good").wait_for()
    said.get_by_role("button", name="Send").click()
    said.get_by_role("listitem").filter(has_text="rated score: 4.5").wait_for()
    of_step = page.get_by_label("Feedback", exact=True)
    with held(page, "**/api/v1/feedback", "POST"):
        of_step.get_by_role("button", name="Rate").click()
        of_step.get_by_role("button", name="Send").click()
        of_step.get_by_role("button", name="Label").click()
        of_step.get_by_label("Name").fill("quality")
    # All that the rating has asked anew.
    of_step.get_by_role("listitem").filter(has_text="rated: 1").wait_for()
    of_step.get_by_label("Value").fill("bad")
    of_step.get_by_role("button", name="Send").click()
    page.locator(".json-text", has_text="bad").wait_for()


def test_what_happens_before_the_page_listens_is_shown(server, visit):
    page = visit(server, "/settings").page
    with held(page, "**/api/v1/stats", "GET"):
        page.goto(f"{server.url}/dashboard/trajectories")
        page.get_by_text("4 shown").wait_for()
        play(server, name="between")
    page.get_by_role("gridcell", name="between-0-0", exact=True).wait_for()
    with held(page, "**/api/v1/stats", "GET"):
        page.goto(f"{server.url}/dashboard/trajectories/between-0-0")
        page.get_by_text("waits for a reward").wait_for(state="hidden")
        page.locator(".facts").get_by_text("in 2 steps").wait_for()
        asked = {"model": "m", "messages": [{"role": "user", "content": "More?"}]}
        assert server.send("POST", "/t/between-0-0/v1/chat/completions", asked)[0] == 200
    page.locator(".facts").get_by_text("in 3 steps").wait_for()


def test_a_filter_that_is_wrong_is_told_once(server, visit):
    page = visit(server, "/trajectories").page
    page.get_by_text("4 shown").wait_for()
    search = page.get_by_role("combobox", name="Filter")
    with held(page, "**/api/v1/explain?*", "GET"):
        search.fill("rewrad >= 1")
        with page.expect_response("**/api/v1/trajectories?*rewrad*") as told:
            search.press("Enter")
        assert told.value.status == 400
        page.get_by_role("button", name="Actions").click()
        page.get_by_label("Actions on many").wait_for()
        assert page.get_by_role("alert").count() == 0
    page.get_by_role("alert").locator("mark").get_by_text("rewrad", exact=True).wait_for()
    assert page.get_by_role("alert").count() == 1


def test_what_is_being_written_stays_while_the_server_refuses(server, visit):
    reviewed(server)
    page = visit(server, "/trajectories/run-0-0").page
    said = page.get_by_label("Said of the trajectory")
    said.get_by_role("button", name="Comment").click()
    said.get_by_role("textbox", name="Comment").fill("terse, but")
    with refused(page, "**/api/v1/session", "**/api/v1/trajectories/run-0-0"):
        page.get_by_role("alert").get_by_text("Not at this time").first.wait_for()
    assert said.get_by_role("textbox", name="Comment").input_value() == "terse, but"

    page.goto(f"{server.url}/dashboard/curation?tab=rules")
    page.get_by_text("In force: look").wait_for()
    page.get_by_label("Rules, one a line").fill("when reward")
    with refused(page, "**/api/v1/curation?channel=train"):
        page.get_by_role("alert").get_by_text("Not at this time").first.wait_for()
    assert page.get_by_label("Rules, one a line").input_value() == "when reward"

    page.goto(f"{server.url}/dashboard/curation")
    page.get_by_label("You are").fill("kim")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Edit the reply").click()
    page.get_by_label("What should have been said").fill("It is 4")
    with refused(page, "**/api/v1/steps?*"):
        page.get_by_role("alert").get_by_text("Not at this time").first.wait_for()
    assert page.get_by_label("What should have been said").input_value() == "It is 4"
