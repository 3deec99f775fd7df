"""Each view on a pool that a run filled, as a person goes through them."""

import json
import re
import shlex

import pytest

from agentworld.pool.keys import NewKey
from agentworld.records import BatchSpec, Message, Step
from tests.browser.accessibility import broken_rules, faults
from tests.browser.driving import play, until_live

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]
NO_KEYS = {"required": False, "key_id": None, "scopes": ["admin"], "channel": None, "trajectory_id": None}


@pytest.fixture(autouse=True)
def _built():
    """These are of the page itself."""
    from agentworld.api.page import is_built

    assert is_built(), "run `make dashboard` first"


def stage(page, name):
    """The number at a stage of the lifecycle."""
    return page.locator(".stages li", has=page.locator(".name", has_text=name)).locator("strong")


def test_the_lifecycle_counts_and_changes_by_itself(server, visit):
    page = visit(server).page
    until_live(page)
    stage(page, "collected").get_by_text("4", exact=True).wait_for()
    stage(page, "ready").get_by_text("4", exact=True).wait_for()
    play(server, name="more")
    stage(page, "collected").get_by_text("5", exact=True).wait_for()
    server.pool.lease(BatchSpec(unit="trajectory", size=2), "policy")
    stage(page, "leased").get_by_text("2", exact=True).wait_for()
    stage(page, "ready").click()
    page.wait_for_url("**/trajectories?where=ready")
    assert page.get_by_role("combobox", name="Filter").input_value() == "ready"


def test_an_empty_pool_says_what_to_do(serving, visit):
    server = serving()
    page = visit(server).page
    page.get_by_text("Nothing is collected yet").wait_for()
    page.get_by_role("region", name="a first call").get_by_text('"model":"m"').wait_for()
    said = page.get_by_role("region").all_inner_texts()
    assert said[1:] == [f"{server.url}/v1", server.url, f"agentworld exec --url {server.url} -- COMMAND"]
    page.get_by_role("button", name="Copy a first call").click()
    page.get_by_text(re.compile("Copied|does not let")).wait_for()
    # What is pasted into a shell is a call that shows here.
    words = [word for word in shlex.split(said[0]) if word.strip()]
    assert words[:2] == ["curl", f"{server.url}/v1/chat/completions"]
    status, _, _ = server.send("POST", "/v1/chat/completions", json.loads(words[words.index("--data-raw") + 1]))
    assert status == 200
    stage(page, "collected").get_by_text("1", exact=True).wait_for()


def test_the_list_filters_tells_errors_and_grows_by_itself(server, visit):
    page = visit(server, "/trajectories").page
    rows = page.locator(".rows .row:not(.head)")
    rows.nth(3).wait_for()
    until_live(page)
    play(server, name="newer")
    page.get_by_role("gridcell", name="newer-0-0", exact=True).wait_for()
    search = page.get_by_role("combobox", name="Filter")
    search.fill("reward >= 1")
    search.press("Enter")
    page.get_by_text("2 shown").wait_for()
    page.wait_for_url("**/trajectories?where=reward*")
    search = page.get_by_role("combobox", name="Filter")
    search.fill("rewrad >= 1")
    search.press("Enter")
    page.get_by_role("alert").locator("mark").get_by_text("rewrad").wait_for()
    assert "reward" in page.get_by_role("alert").inner_text()
    page.go_back()
    page.get_by_text("2 shown").wait_for()


def test_everything_goes_by_the_keyboard(server, visit):
    page = visit(server).page
    until_live(page)
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/trajectories")
    page.locator(".row.chosen").wait_for()
    page.get_by_role("grid").focus()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    chosen = page.locator(".row.chosen a").inner_text()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/trajectories/{chosen}")
    page.locator(".message").first.wait_for()
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("Next and previous row").wait_for()
    page.get_by_role("tab", name="Keys").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_role("dialog").get_by_text("Handed out time and again").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.get_by_role("button", name="Help").click()
    page.get_by_role("region", name="How it is used").get_by_role("link", name="Datasets").first.click()
    page.get_by_role("heading", name="Datasets").wait_for()
    page.get_by_role("dialog").wait_for(state="hidden")


def test_a_trajectory_shows_messages_and_ids_as_they_are(server, visit):
    page = visit(server, "/trajectories/run-0-1").page
    page.get_by_role("option").nth(1).click()
    page.locator(".message", has_text="And then?").wait_for()
    reply = page.locator(".message.assistant").last
    assert reply.locator("strong").count() == 1
    assert re.fullmatch(r"It is \d+ done\.", reply.locator(".text").inner_text().strip())
    page.get_by_role("tab", name="tokens").click()
    page.locator(".token-row").first.wait_for()
    steps = server.pool.list_steps(trajectory_id="run-0-1", include=("tokens", "logprobs")).items
    shown = [int(text) for text in page.locator(".token-row .token").all_inner_texts()]
    sequence = [*steps[1].prompt_ids, *steps[1].response_ids]
    assert shown == sequence[: len(shown)]
    page.locator(".tokens").evaluate("box => box.scrollTop = box.scrollHeight")
    last = page.locator(f".token[title^='{len(sequence) - 1}: id {sequence[-1]}, sampled, log-probability']")
    last.wait_for()
    page.wait_for_url("**/trajectories/run-0-1?*step=*")
    page.get_by_role("tab", name="record").click()
    page.get_by_text("token_source").wait_for()


HOSTILE = (
    "<script>alert('hit')</script><img src=x onerror=alert('hit')>"
    " [a](javascript:alert('hit')) ![b](http://elsewhere.test/x.png) \u202egnp.exe\u0007"
)


def test_hostile_text_is_text(server, visit):
    step = Step(
        step_id="h",
        trajectory_id="hostile",
        agent="<img src=http://elsewhere.test/a.png>",
        prompt_messages=[Message(role="user", content=HOSTILE), Message(role="tool", content=HOSTILE * 20_000)],
        response_message=Message(role="assistant", content=HOSTILE, reasoning=HOSTILE),
    )
    [result] = server.pool.append_steps([step])
    assert result.outcome == "stored", result
    page = visit(server, "/trajectories").page
    page.get_by_role("gridcell", name="hostile", exact=True).click()
    page.locator(".message.assistant").wait_for()
    assert "\\u202egnp.exe\\u0007" in page.locator(".message.user").inner_text()
    page.get_by_role("button", name="more characters").first.wait_for()
    found = "main script, main img, main iframe, main a[href^=javascript], main [onerror]"
    assert page.locator(found).count() == 0
    page.get_by_role("tab", name="record").click()
    page.get_by_text("token_source").wait_for()


def test_a_sign_in_with_a_lesser_key(serving, visit):
    server = serving(require_keys=True)
    admin = server.pool.create_key(NewKey(name="admin", scopes=("admin",))).secret
    reader = server.pool.create_key(NewKey(name="page", scopes=("read",))).secret
    play(server, key=admin)
    seen = visit(server, "/trajectories")
    page = seen.page
    page.get_by_label("API key").fill("aw-k-nobody-knows")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("alert").get_by_text("not known").wait_for()
    page.get_by_label("API key").fill(reader)
    page.keyboard.press("Enter")
    page.get_by_role("gridcell", name="run-0-0", exact=True).wait_for()
    until_live(page)
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, location.href])")
    assert reader not in kept
    [cookie] = seen.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    page.reload()
    page.get_by_role("gridcell", name="run-0-0", exact=True).wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").wait_for()
    assert seen.cookies() == []
    page.get_by_label("API key").fill(reader)
    page.keyboard.press("Enter")
    until_live(page)
    # Where keys are no longer asked for, the stream goes on after a sign-out.
    page.route("**/api/v1/session", lambda route: route.fulfill(json=NO_KEYS))
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("button", name="Sign out").wait_for(state="detached")
    until_live(page)


def test_the_page_goes_on_when_the_server_is_back(server, visit):
    seen = visit(server)
    page = seen.page
    until_live(page)
    stage(page, "collected").get_by_text("4", exact=True).wait_for()
    seen.offline(True)
    server.end_streams()
    page.get_by_text("Connection lost, trying again").wait_for()
    play(server, name="meanwhile")
    stage(page, "collected").get_by_text("4", exact=True).wait_for()
    seen.offline(False)
    stage(page, "collected").get_by_text("5", exact=True).wait_for()


def test_consumption_and_datasets(server, visit):
    batch = server.pool.lease(BatchSpec(method="grpo", groups=2, rollouts=2), "policy")
    page = visit(server, "/consumption").page
    page.get_by_role("cell", name=batch.batch_id).wait_for()
    until_live(page)
    server.pool.ack(batch.batch_id, batch.epoch)
    page.get_by_role("cell", name="acked").wait_for()
    page.get_by_role("link", name="Datasets").click()
    page.get_by_text("No dataset is frozen yet").wait_for()


def test_it_can_be_used_on_a_phone(server, visit):
    seen = visit(server, "/trajectories/run-0-0", color_scheme="dark")
    page = seen.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator(".message").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light dark"
    # The views are one row, of which the keyboard opens a menu and closes it.
    assert page.locator("nav").bounding_box()["height"] < 60
    menu = page.get_by_role("button", name="Views: Trajectories", expanded=False)
    menu.press("Enter")
    opened = page.get_by_role("button", name="Views: Trajectories", expanded=True)
    opened.press("Tab")
    page.locator("a:focus", has_text="Lifecycle").wait_for()
    page.keyboard.press("Escape")
    menu.wait_for()
    assert menu.evaluate("button => button === document.activeElement")
    assert page.get_by_role("link", name="Runs").count() == 0
    menu.click()
    assert faults(page) == {}
    page.get_by_role("button", name="Help").click()
    page.get_by_role("tab", name="Words").click()
    assert faults(page) == {}
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Views: Trajectories", expanded=False).click()
    page.get_by_role("link", name="Runs").click()
    page.get_by_role("heading", name="Runs").wait_for()
    page.get_by_role("button", name="Views: Runs", expanded=False).wait_for()


def test_the_tree_of_a_group_zooms_and_says_what_it_saves(server, visit):
    page = visit(server, "/trajectories/run-0-1").page
    page.get_by_role("link", name="its token tree").click()
    nodes = page.locator(".icicle .node")
    nodes.nth(1).wait_for()
    merged = server.send("GET", "/api/v1/merge/stats?group=run-g0")[2]["whole"]
    page.get_by_text(f"{merged['total']:,} tokens flat, {merged['unique']:,} merged").wait_for()
    before = nodes.count()
    first = nodes.nth(1)
    first.focus()
    page.locator(".bar [aria-live]").get_by_text("tokens from").wait_for()
    [drawn] = [
        each for each in server.send("GET", "/api/v1/merge/tree?group=run-g0&ids=512")[2]["nodes"] if each["id"] == 1
    ]
    first.click()
    page.get_by_role("button", name="Whole tree").wait_for()
    assert nodes.count() < before
    # Down to its tokens, and the steps that end with it.
    page.locator(".node-tokens .token").nth(drawn["length"] - 1).wait_for()
    assert [int(text) for text in page.locator(".node-tokens .token").all_inner_texts()] == drawn["token_ids"]
    assert page.get_by_role("button", name="step ").count() == len(drawn["ends"])
    page.get_by_role("button", name="Whole tree").click()
    nodes.nth(before - 1).wait_for()
    page.goto(f"{server.url}/dashboard/optimization?group=no-such")
    page.get_by_role("alert").first.wait_for()


RULES = 'when reward < 0.5 then review "why did it fail" 0.7'


def test_reviews_go_by_the_keyboard_and_can_be_undone(server, visit):
    page = visit(server, "/curation?tab=rules").page
    page.get_by_label("Rules, one a line").fill("when rewrad > 1 then review 'x'")
    page.get_by_role("alert").locator("mark").get_by_text("rewrad").wait_for()
    page.get_by_label("Rules, one a line").fill(RULES)
    page.get_by_role("button", name="Try").click()
    page.get_by_role("row", name="1. when").get_by_role("cell", name="for review", exact=True).wait_for()
    page.get_by_role("button", name="Put in force").click()
    page.get_by_text("In force: policy").wait_for()
    page.get_by_text("0 excluded, 2 to review, 2 ready.").wait_for()
    page.get_by_text("Trying wrote nothing").wait_for()
    page.get_by_role("button", name="Take out of force").click()
    page.get_by_role("button", name="Keep them").click()
    page.get_by_role("link", name="2 to review").click()
    waiting = page.locator(".queue-counts dd")
    waiting.filter(has_text=re.compile(r"^2\s+for anybody")).wait_for()
    page.get_by_label("You are").fill("anna")
    page.keyboard.press("Enter")
    page.get_by_text("why did it fail").wait_for()
    page.locator(".message.assistant").last.wait_for()
    page.get_by_role("heading", name="Reviews").click()
    # Keys are heard once what was decided before is done with, as the buttons say.
    heard = page.locator(".bar button:enabled", has_text="reject")
    heard.wait_for()
    page.keyboard.press("a")
    page.get_by_role("status").get_by_text("Accepted").wait_for()
    [done] = server.pool.list_reviews(state="done").items
    assert (done.verdict, done.resolved_by) == ("accept", "anna")
    # The other one is theirs meanwhile.
    waiting.filter(has_text=re.compile(r"^0\s+for you")).wait_for()
    page.keyboard.press("u")
    waiting.filter(has_text=re.compile(r"^1\s+for you")).wait_for()
    page.get_by_text("why did it fail").wait_for()
    heard.wait_for()
    page.keyboard.press("s")
    page.get_by_role("link", name=done.trajectory_id).wait_for()
    heard.wait_for()
    page.keyboard.press("r")
    page.get_by_role("status").get_by_text("Rejected").wait_for()
    page.get_by_text("Nothing waits for you").wait_for()
    [done] = server.pool.list_reviews(state="done").items
    assert server.pool.get_trajectory(done.trajectory_id).readiness == "excluded"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_hold_to_the_rules_of_accessibility(server, visit, scheme):
    server.pool.lease(BatchSpec(unit="trajectory", size=2), "policy")
    seen = visit(server, color_scheme=scheme)
    page = seen.page
    views = {
        "/": ".stages",
        "/trajectories": ".row a",
        "/trajectories/run-0-1": ".message",
        "/consumption": "td",
        "/curation?tab=rules": "textarea",
        "/optimization?group=run-g0": ".icicle .node",
    }
    assert broken_rules(page, server, views) == {}
