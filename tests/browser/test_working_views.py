"""Views that people work in day by day, on one pool that a run filled: what they show, change, and refuse to offer."""

import json
import os
from pathlib import Path
from urllib.parse import quote

import pytest

from agentworld.config import LabelScheme, ModelSettings
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.pool.keys import NewKey
from agentworld.records import BatchSpec, CurationPolicy, Exchange, Feedback, Metrics, NewTrajectory, Selection
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.browser.accessibility import LIGHT_AND_DARK, broken_rules
from tests.browser.driving import play, until_live

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]
# `make test` goes a few ways alone, as a browser takes its time; `make test-browser` goes them all.
whole = pytest.mark.skipif(os.environ.get("TEST_BROWSER") != "all", reason="make test-browser goes this way too")
HOSTILE = "<img src=x onerror=alert(1)>\u202e"


@pytest.fixture(scope="module")
def filled():
    """A server with labels to offer, after a run of two groups of two, with what people and a trainer said of it."""
    schemes = (LabelScheme(name="quality", values=("good", "bad"), says="how well"),)
    with ScriptedEngine(lambda request: f"It is **{request.call}** `done`.", model="m") as engine:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,), labels=schemes) as server:
            play(server, groups=2, rollouts=2)
            pool = server.pool
            said = [
                Feedback(kind="label", name="quality", value=value, source=who, trajectory_id=f"run-0-{rollout}")
                for rollout in range(2)
                for who, value in (("anna", "good"), ("ben", ("good", "bad")[rollout]))
            ]
            evidence = {
                "name": "check.loop",
                "value": 3,
                "source": "check:loop@1",
                "comment": f'{{"cycle": "{HOSTILE}"}}',
            }
            pool.add_feedback([*said, Feedback(kind="label", trajectory_id="run-0-0", **evidence)])
            pool.add_metrics(
                [Metrics(run="fit", step=step, values={"loss": 1 / step, HOSTILE: 0.5}) for step in (1, 2, 3)]
            )
            error = {"code": "engine_timeout", "message": f"late {HOSTILE}"}
            call = {"dialect": "chat", "model": "m", "requested_model": "m", "messages": [], "error": error}
            pool.append_exchange(Exchange(exchange_id="gone", trajectory_id="run-0-0", **call))
            first = create_dataset(pool, "all", Selection(), note=HOSTILE)
            create_dataset(pool, "all", Selection(where="reward >= 1"), parents=[first.version])
            batch = pool.lease(BatchSpec(method="grpo", groups=1, rollouts=2), "policy")
            pool.ack(batch.batch_id, batch.epoch)
            yield server


def test_the_feed_and_what_is_in_progress_change_by_themselves(filled, visit):
    page = visit(filled, "/collection").page
    page.locator(".feed li").first.wait_for()
    until_live(page)
    filled.send("POST", "/api/v1/trajectories", {"trajectory_id": "just-now"})
    page.get_by_role("cell", name="just-now").wait_for()
    page.locator(".feed li", has_text="trajectory.created").get_by_role("link", name="just-now").wait_for()
    page.get_by_role("button", name="Hold").click()
    filled.send("POST", "/api/v1/trajectories/just-now/complete", {"status": "abandoned"})
    page.get_by_role("button", name="Go on, 1 new").click()
    page.locator(".feed li", has_text="status abandoned").wait_for()
    page.get_by_role("link", name="Lifecycle").click()
    page.get_by_role("heading", name="Lifecycle").wait_for()
    filled.send("POST", "/api/v1/trajectories", {"trajectory_id": "meanwhile"})
    # The page has heard of it before the feed is there again.
    page.locator(".stages").get_by_text("1 still open").wait_for()
    page.get_by_role("link", name="Collection").click()
    page.locator(".feed").get_by_role("link", name="meanwhile").wait_for()
    filled.send("POST", "/api/v1/trajectories/meanwhile/complete", {"status": "abandoned"})
    page.get_by_role("tab", name="Errors").click()
    page.get_by_role("cell", name="engine_timeout").wait_for()
    assert "\\u202e" in page.get_by_role("cell", name="late").inner_text()
    page.get_by_role("tab", name="Engines").click()
    page.get_by_role("cell", name="well", exact=True).wait_for()
    page.get_by_role("tab", name="Engines").press("ArrowLeft")
    page.get_by_role("cell", name="no name was given").wait_for()


@whole
def test_the_lifecycle_tells_what_is_wrong_and_what_to_do(filled, visit):
    filled.send("POST", "/api/v1/trajectories", {"trajectory_id": "left"})
    filled.send("POST", "/api/v1/trajectories/left/complete", {"status": "abandoned"})
    page = visit(filled).page
    reasons = page.get_by_role("region", name="Why excluded")
    reasons.get_by_role("link", name="abandoned").click()
    page.get_by_role("gridcell", name="left", exact=True).wait_for()
    page.go_back()
    page.get_by_role("list", name="Alerts").get_by_text("1 of 9 calls got no reply").wait_for()
    page.get_by_role("list", name="Alerts").get_by_role("link", name="Look").first.click()
    page.wait_for_url("**/collection?tab=errors")


@whole
def test_a_batch_is_told_whole_and_methods_say_what_they_lack(filled, visit):
    page = visit(filled, "/consumption").page
    [batch] = filled.pool.list_batches().items
    page.get_by_text("Versions behind at the lease").wait_for()
    page.get_by_role("button", name="Ask for every method").click()
    table = page.get_by_role("region", name="Methods")
    line = table.get_by_role("row").filter(has=page.get_by_role("cell", name="grpo", exact=True))
    line.get_by_text("can be served", exact=True).wait_for()
    table.get_by_role("row", name="sft").get_by_text("no reward", exact=False).first.wait_for()
    table.get_by_role("row", name="prm").get_by_text("cannot be served yet").wait_for()
    table.get_by_role("row", name="prm").get_by_text("Give rewards to steps").wait_for()
    page.get_by_label("Batch spec as JSON").fill('{"method": "nope"}')
    page.get_by_role("button", name="Check", exact=True).click()
    page.get_by_role("alert").get_by_text("nope").wait_for()
    page.get_by_label("Batch spec as JSON").fill("")
    page.get_by_label("Why is this one served").fill("run-g0")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("Not served.").wait_for()
    page.get_by_role("link", name=batch.batch_id).first.click()
    page.get_by_role("heading", name=f"Batch {batch.batch_id}").wait_for()
    page.get_by_role("link", name="run-0-1", exact=True).wait_for()
    assert "run-0-1: reward 1" in page.get_by_role("row", name="run-g0").inner_text()


def test_a_version_is_frozen_compared_verified_and_saved(filled, visit):
    page = visit(filled, "/datasets").page
    page.get_by_text("Freeze a version").click()
    page.get_by_label("Name").fill("mine")
    page.get_by_label("Where, of trajectories").fill("rewrad > 0")
    page.get_by_role("button", name="Freeze", exact=True).click()
    page.get_by_role("alert").get_by_text("rewrad").wait_for()
    page.get_by_label("Where, of trajectories").fill("reward >= 0")
    page.get_by_role("button", name="Freeze", exact=True).click()
    page.get_by_role("heading", name="mine@").wait_for()
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("4 of 4 rows are what they were.").wait_for()
    page.get_by_role("tab", name="Rows").click()
    page.get_by_role("link", name="run-1-1").wait_for()
    second = next(each for each in filled.pool.list_datasets(name="all").items if each.parents)
    page.goto(f"{filled.url}/dashboard/datasets/{quote(second.version)}?tab=lineage")
    page.get_by_role("link", name=second.parents[0]).wait_for()
    page.get_by_role("tab", name="Compare").click()
    page.get_by_role("row", name="run-0-0").get_by_text("removed").wait_for()
    page.get_by_role("tab", name="Export").click()
    page.get_by_label("Truncated").select_option("keep")
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save as JSONL").click()
    assert "truncated=keep" in saving.value.url
    rows = [json.loads(line) for line in Path(saving.value.path()).read_text().splitlines()]
    assert [row["agentworld"]["trajectory_id"] for row in rows] == ["run-0-1", "run-1-1"]
    assert saving.value.suggested_filename.endswith("-sft-train.jsonl")
    page.get_by_label("Layout").select_option("preference")
    page.get_by_role("button", name="Save as JSONL").click()
    refused = page.get_by_role("alert")
    refused.get_by_text("gives no row").wait_for()
    assert "?layout" not in refused.inner_text()


@whole
def test_from_an_empty_pool_to_a_version_of_what_people_labelled(serving, visit):
    server = serving(labels=(LabelScheme(name="quality", values=("good", "bad")),))
    page = visit(server).page
    page.get_by_text("Nothing is collected yet").wait_for()
    until_live(page)
    play(server, groups=2, rollouts=2)
    page.locator(".stages li", has_text="ready").get_by_text("4", exact=True).wait_for()
    page.get_by_role("link", name="Curation").click()
    page.get_by_text("Say who you are").wait_for()
    page.get_by_label("You are").fill("newcomer")
    page.keyboard.press("Enter")
    page.get_by_text("the tab Rules has an example").wait_for()
    page.get_by_role("tab", name="Rules").click()
    page.get_by_label("Rules, one a line").fill('when reward >= 1 then review "is it really right?"')
    page.get_by_role("button", name="Try").click()
    page.get_by_text("4 trajectories were looked at").wait_for()
    page.get_by_role("button", name="Put in force").click()
    page.get_by_text("In force: policy").wait_for()
    page.get_by_role("tab", name="Reviews").click()
    page.locator(".queue-counts").get_by_text("1", exact=True).first.wait_for()
    target = page.get_by_label("Review", exact=True).locator(".facts a")
    for _ in range(2):
        of = target.inner_text()
        page.get_by_role("button", name="good 1").click()
        page.get_by_text("Labelled quality: good").wait_for()
        page.get_by_role("button", name="accept a").click()
        page.get_by_text(f"Accepted {of}").wait_for()
        target.filter(has_text=of).wait_for(state="detached")
    page.get_by_role("navigation").get_by_role("link", name="Datasets").click()
    page.get_by_text("Freeze a version").click()
    page.get_by_label("Name").fill("right")
    page.get_by_label("Where, of trajectories").fill("label.quality == 'good'")
    page.get_by_label("Held out, percent").fill("0")
    page.get_by_role("button", name="Freeze", exact=True).click()
    page.get_by_role("tab", name="Export").click()
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save as JSONL").click()
    rows = [json.loads(line) for line in Path(saving.value.path()).read_text().splitlines()]
    assert sorted(row["agentworld"]["trajectory_id"] for row in rows) == ["run-0-1", "run-1-1"]


@whole
def test_runs_have_their_curves_as_they_are_told(filled, visit):
    page = visit(filled, "/runs").page
    page.locator(".chart").get_by_text("train/loss").wait_for()
    until_live(page)
    filled.pool.add_metrics([Metrics(run="another", step=1, values={"loss": 2.0, "own": 7.0})])
    page.get_by_label("another").wait_for()
    page.get_by_text("Curves, ").click()
    page.get_by_label("train/own").check()
    page.locator(".chart", has_text="train/own").get_by_text("Numbers").click()
    page.get_by_label("Numbers of train/own").get_by_role("cell", name="7", exact=True).wait_for()
    page.get_by_role("combobox", name="Curves").select_option("all")
    page.locator(".chart").get_by_text("Success by version, all runs").wait_for()
    page.get_by_role("link", name="ended").first.click()
    page.wait_for_url("**/trajectories?where=*")
    page.locator(".row a").first.wait_for()


@whole
def test_what_merging_saves_is_told_along_batches_and_budgets(filled, visit):
    page = visit(filled, "/optimization").page
    page.get_by_text("Ratio of tokens, flat by merged").wait_for()
    offered = page.locator("#sources option")
    offered.first.wait_for(state="attached")
    assert "run-g0" in offered.evaluate_all("all => all.map(each => each.value)")
    page.goto(f"{filled.url}/dashboard/optimization?group=run-g0&budget=512")
    page.get_by_role("button", name="Try other budgets").click()
    page.get_by_role("row", name="1,024").wait_for()


def test_replies_are_compared_and_taken_back_by_the_keyboard(filled, visit):
    page = visit(filled, "/curation?tab=compare&group=run-g0").page
    page.get_by_label("You are").fill("zoe")
    page.keyboard.press("Enter")
    page.locator(".sides .message:visible").first.wait_for()
    page.get_by_text("Pair 1 of 1").click()
    # Keys are heard as the buttons say.
    heard = page.locator(".sides button:enabled").nth(1)
    heard.wait_for()
    page.keyboard.press("2")
    page.get_by_text("Preferred run-0-1 to run-0-0").wait_for()
    heard.wait_for()
    page.keyboard.press("1")
    page.get_by_text("Preferred run-0-0 to run-0-1").wait_for()

    def said():
        return [
            (one.trajectory_id, one.value)
            for rollout in range(2)
            for one in filled.pool.list_feedback(
                trajectory_id=f"run-0-{rollout}", kind="comparison", source="zoe"
            ).items
        ]

    assert said() == [("run-0-0", None), ("run-0-1", None), ("run-0-1", 0)]
    page.keyboard.press("u")
    page.get_by_text("Taken back: Preferred run-0-0").wait_for()
    assert said() == [("run-0-0", None), ("run-0-0", 0), ("run-0-1", None), ("run-0-1", 0), ("run-0-1", None)]


def test_reviews_label_and_correct_and_undo_goes_back_step_by_step(filled, visit):
    pool = filled.pool
    rules = ("when reward >= 1 then review 'look'",)
    pool.set_curation(CurationPolicy(channel="train", name="look", rules=rules))
    page = visit(filled, "/curation").page
    page.get_by_label("You are").fill("kim")
    page.keyboard.press("Enter")
    target = page.get_by_label("Review", exact=True).locator(".facts a")
    target.wait_for()
    of = target.inner_text()
    page.get_by_role("button", name="good 1").wait_for()
    page.get_by_role("heading", name="Reviews").click()
    page.keyboard.press("2")
    page.get_by_text("Labelled quality: bad").wait_for()
    page.get_by_role("button", name="bad 2", pressed=True).wait_for()
    page.get_by_role("button", name="Edit the reply").click()
    page.get_by_label("What should have been said").fill("It is 42.")
    page.get_by_role("button", name="Save the correction").click()
    page.locator(".undo").get_by_text("Corrected the reply").wait_for()
    changed = page.get_by_role("listitem").filter(has_text="kim corrected the reply")
    assert changed.locator("ins").last.inner_text() == "42."
    last = pool.list_steps(trajectory_id=of, order="newest", limit=1).items[0].step_id
    [corrected] = pool.list_feedback(step_id=last, kind="correction").items
    assert (corrected.value, corrected.source) == ("It is 42.", "kim")
    page.get_by_role("heading", name="Reviews").click()
    page.keyboard.press("u")
    page.get_by_text("Taken back: Corrected the reply").wait_for()
    page.keyboard.press("u")
    page.get_by_text("Taken back: Labelled quality: bad").wait_for()
    page.get_by_role("button", name="bad 2", pressed=False).wait_for()
    pool.clear_curation("train")


@whole
def test_labels_have_evidence_and_agreement_is_measured(filled, visit):
    page = visit(filled, "/curation?tab=checks").page
    page.get_by_role("button", name="Evidence for check.loop").click()
    page.get_by_text("onerror").wait_for()
    assert page.locator("main img").count() == 0
    page.get_by_role("tab", name="Agreement").click()
    page.get_by_label("Name").fill("quality")
    page.get_by_role("button", name="Measure").click()
    page.get_by_text("Krippendorff's alpha").wait_for()
    page.get_by_role("row", name="run-0-1").get_by_text("ben").wait_for()


def test_keys_are_shown_once_and_ended_and_limits_are_tried_first(filled, visit):
    page = visit(filled, "/settings?tab=keys").page
    page.get_by_label("Name").fill("page")
    page.get_by_label("lease").check()
    page.get_by_role("button", name="Make a key").click()
    secret = page.locator(".secret code").inner_text()
    assert secret.startswith("aw-")
    [stored] = filled.pool.list_keys()
    assert stored.scopes == ("read", "lease")
    page.get_by_role("button", name="Done").click()
    page.reload()
    page.get_by_role("button", name="Revoke page").click()
    assert secret not in page.content()
    page.get_by_role("button", name="End it for good").click()
    page.get_by_role("cell", name="revoked").wait_for()
    page.get_by_role("tab", name="Retention").click()
    gone = page.get_by_role("button", name="Let it go for good")
    assert gone.is_disabled()
    page.get_by_label("Behind the policy by versions").fill("100")
    page.get_by_role("button", name="Try", exact=True).click()
    page.get_by_text("Nothing was taken. This would go:").wait_for()
    assert gone.is_enabled()
    page.get_by_label("Behind the policy by versions").fill("99")
    assert gone.is_disabled()
    page.get_by_role("tab", name="Server").click()
    page.get_by_text("takes writes").wait_for()


def test_a_key_that_reads_is_offered_nothing_that_would_be_refused(serving, visit):
    server = serving(require_keys=True)
    admin = server.pool.create_key(NewKey(name="admin", scopes=("admin",))).secret
    reader = server.pool.create_key(NewKey(name="page", scopes=("read",))).secret
    bound = server.pool.create_key(NewKey(name="val", scopes=("read",), channel="val")).secret
    play(server, key=admin)
    version = create_dataset(server.pool, "kept", Selection()).version
    server.pool.lease(BatchSpec(unit="trajectory", size=1), "policy")
    page = visit(server, "/settings?tab=keys").page
    page.get_by_label("API key").fill(reader)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sign out").wait_for()
    offered = {
        "/settings?tab=keys": ("Looking at keys needs a key with the scope admin", "Make a key"),
        "/settings?tab=retention": ("Retention needs a key with the scope admin", "Try"),
        "/curation": ("Deciding needs a key with the scope write", "accept"),
        "/curation?tab=rules": ("Putting rules in force needs a key with the scope admin", "Put in force"),
        "/curation?tab=compare&group=run-g0": ("This group has 1 rollout that has ended", "This one is better"),
        f"/datasets/{quote(version)}": ("Deleting a version needs a key with the scope admin", "Delete"),
        "/trajectories?actions=on": ("need a key with the scope write, Delete one with admin", "Delete for good"),
        "/datasets": ("Freezing a version needs a key with the scope write", "Freeze"),
        "/consumption": ("What may be served", "Hand out anew"),
    }
    for path, (says, without) in offered.items():
        page.goto(f"{server.url}/dashboard{path}")
        page.get_by_text(says).first.wait_for()
        assert page.get_by_role("button", name=without, exact=True).count() == 0, path
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").fill(bound)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Sign out").wait_for()
    for path, says in {
        "/": "This key is bound",
        "/settings": "sees nothing of the server",
        "/runs": "Nothing has run yet",
        "/consumption": "it sees the batches of its channel",
        "/collection": "hears of its channel or trajectory alone",
    }.items():
        page.goto(f"{server.url}/dashboard{path}")
        page.get_by_text(says).first.wait_for()
    # It hears what is told of its channel as it happens, and nothing of others.
    until_live(page)
    server.pool.create_trajectory(NewTrajectory(trajectory_id="not-theirs", channel="train"))
    server.pool.create_trajectory(NewTrajectory(trajectory_id="theirs", channel="val"))
    page.locator(".feed li").get_by_role("link", name="theirs", exact=True).wait_for()
    page.get_by_role("cell", name="theirs", exact=True).wait_for()
    assert "not-theirs" not in page.content()


@whole
def test_a_view_that_failed_comes_back_with_the_server(serving, visit):
    server = serving(labels=(LabelScheme(name="quality", values=("good", "bad")),))
    page = visit(server).page
    until_live(page)
    page.route("**/api/v1/**", lambda route: route.abort())
    server.end_streams()
    page.get_by_text("Connection lost, trying again").wait_for()
    page.get_by_role("link", name="Settings").click()
    page.get_by_role("tab", name="Labels").click()
    of_labels = page.get_by_role("tabpanel", name="Labels")
    of_labels.get_by_role("alert").get_by_text("The server does not answer").wait_for()
    # A call that is being refused at this moment would otherwise be left without an answer.
    page.unroute_all(behavior="wait")
    page.get_by_role("cell", name="good, bad").wait_for()


@whole
def test_these_views_hold_to_the_rules_of_accessibility(filled, visit):
    page = visit(filled).page
    [batch] = filled.pool.list_batches().items
    version = quote(filled.pool.list_datasets(name="all").items[0].version)
    views = {
        "/": ".alerts",
        "/collection": ".feed li",
        "/collection?tab=agents": "td",
        "/collection?tab=engines": "td",
        "/collection?tab=errors": "td",
        "/curation": "main h2",
        "/curation?tab=compare&group=run-g0": ".sides .message",
        "/curation?tab=checks": "td",
        "/curation?tab=agreement&name=quality": "td",
        "/datasets": "td",
        f"/datasets/{version}": "td",
        f"/datasets/{version}?tab=lineage": ".lineage a",
        f"/datasets/{version}?tab=export": "select",
        "/consumption": ".chart",
        f"/consumption/{batch.batch_id}": "td",
        "/optimization": ".chart",
        "/runs": ".chart",
        "/settings": "td",
        "/settings?tab=keys": "form",
        "/settings?tab=retention": "form",
        "/settings?tab=labels": "td",
    }
    assert broken_rules(page, filled, views, LIGHT_AND_DARK) == {}


@whole
def test_no_view_is_wider_than_a_phone(filled, visit):
    page = visit(filled).page
    page.set_viewport_size({"width": 390, "height": 800})
    wide = []
    for path in (
        "/",
        "/collection",
        "/curation?tab=compare&group=run-g0",
        "/datasets",
        "/consumption",
        "/optimization",
        "/runs",
        "/settings?tab=keys",
    ):
        page.goto(f"{filled.url}/dashboard{path}")
        until_live(page)
        page.locator("main h1").wait_for()
        page.get_by_text("Loading", exact=True).first.wait_for(state="hidden")
        if not page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"):
            wide.append(path)
    assert wide == []
