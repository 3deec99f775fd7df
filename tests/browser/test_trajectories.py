"""The list of trajectories and one of them, as a person goes through them."""

import base64
import json
import os
import re
from urllib.parse import parse_qs

import pytest

from agentworld.config import ModelSettings
from agentworld.engines.tokenizer import load_tokenizer
from agentworld.pool.keys import NewKey
from agentworld.records import (
    Annotation,
    Feedback,
    FunctionCall,
    MediaPart,
    Message,
    NewReview,
    NewTrajectory,
    Reward,
    Step,
    TextPart,
    ToolCall,
)
from tests.api.serving import Serving
from tests.browser.accessibility import broken_rules
from tests.browser.driving import play
from tests.browser.test_views import HOSTILE

# One pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)

whole = pytest.mark.skipif(os.environ.get("TEST_BROWSER") != "all", reason="make test-browser goes this way too")
pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]


def asked(page):
    """What the address asks for. The page itself is asked, as what is told of its address may come later."""
    return {name: value for name, [value] in parse_qs(page.evaluate("location.search.slice(1)")).items()}


def rows(page):
    return page.locator(".rows .row:not(.head)")


def offered_readiness(visit, server):
    """The list, and its filter in which the beginning of a field was typed, which is offered by now."""
    page = visit(server, "/trajectories").page
    search = page.get_by_role("combobox", name="Filter")
    search.press_sequentially("rea")
    page.get_by_role("option").filter(has_text="readiness").first.wait_for()
    return page, search


def test_the_caret_stays_with_who_types_on_before_the_next_frame(server, visit):
    page, search = offered_readiness(visit, server)
    page.evaluate("() => { window.late = []; window.requestAnimationFrame = (call) => window.late.push(call) }")
    search.press("Enter")
    search.press_sequentially("=")
    page.evaluate("() => window.late.splice(0).forEach((call) => call(performance.now()))")
    search.press_sequentially("= ")
    assert search.input_value() == "readiness == "
    page.get_by_role("option").filter(has_text="'ready'").wait_for()


def test_a_filter_is_completed_corrected_and_saved(server, visit):
    page, search = offered_readiness(visit, server)
    search.press("Enter")
    assert search.input_value() == "readiness "
    search.press_sequentially("== ")
    page.get_by_role("option").filter(has_text="'ready'").wait_for()
    search.press_sequentially("rea")
    search.press("Enter")
    assert search.input_value() == "readiness == 'ready' "
    search.press_sequentially("and rewrad > 0")
    wrong = page.get_by_role("alert")
    # What was wrong while it was being typed may be told for a moment.
    wrong.locator("mark").get_by_text("rewrad", exact=True).wait_for()
    assert asked(page) == {}
    with page.expect_response("**/api/v1/trajectories?*rewrad*") as refused:
        search.press("Enter")
    assert refused.value.status == 400
    page.get_by_text("0 shown").wait_for()
    wrong.locator("mark").wait_for()
    search.fill("readiness == 'ready' and reward > 0")
    search.press("Enter")
    page.get_by_text("2 shown").wait_for()
    page.get_by_role("button", name="Reward", exact=True).click()
    page.get_by_text("Columns", exact=True).click()
    page.get_by_role("checkbox", name="Steps").uncheck()
    page.get_by_role("columnheader", name="Steps").wait_for(state="hidden")
    state = asked(page)
    assert (state["where"], state["sort"]) == ("readiness == 'ready' and reward > 0", "-reward")
    assert "steps" not in state["columns"].split(",")
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
    page.locator(f"[aria-label='Width of Status'][aria-valuenow='{before + 10}']").wait_for()


@whole
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


@whole
def test_the_server_sorts_by_what_it_keeps_an_order_of_and_the_page_what_it_holds(serving, visit):
    server = serving()
    for number in range(150):
        server.pool.create_trajectory(NewTrajectory(trajectory_id=f"t{number:03}", priority=float(number % 50)))
    page = visit(server, "/trajectories?sort=trajectory").page
    page.get_by_text("150 shown, sorted by trajectory").wait_for()
    rows(page).first.get_by_text("t000", exact=True).wait_for()
    page.get_by_role("button", name="Trajectory", exact=True).click()
    page.get_by_text("150 shown").wait_for()
    rows(page).first.get_by_text("t149", exact=True).wait_for()
    assert asked(page) == {}
    with page.expect_response(lambda reply: "sort=-priority" in reply.url and "cursor" not in reply.url):
        page.goto(f"{server.url}/dashboard/trajectories?sort=-priority&columns=priority")
    rows(page).first.get_by_text("t149", exact=True).wait_for()
    rows(page).nth(1).get_by_text("t099", exact=True).wait_for()
    page.get_by_label("Order").select_option("newest")
    rows(page).nth(1).get_by_text("t148", exact=True).wait_for()


@whole
def test_rows_begin_with_the_prompt_and_two_of_them_are_compared(server, visit):
    pool = server.pool
    pool.add_reviews([NewReview(trajectory_id="run-0-0", reason="look")])
    page = visit(server, "/trajectories?facets=on").page
    rows(page).filter(has_text="run-1-1").get_by_text("How many in 1?").wait_for()
    rows(page).filter(has_text="run-0-0").get_by_text("to review").wait_for()
    page.get_by_label("Facets").get_by_role("button", name="to review 1").click()
    page.get_by_text("1 shown").wait_for()
    assert asked(page)["where"] == "review == 'waiting'"
    page.go_back()
    page.get_by_text("4 shown").wait_for()
    every = page.get_by_role("checkbox", name="Choose all that are loaded")
    every.press("Space")
    page.get_by_text("4 chosen").wait_for()
    assert page.get_by_role("button", name="Compare").is_disabled()
    every.press("Space")
    grid = page.get_by_role("grid")
    grid.press("x")
    page.get_by_text("1 chosen").wait_for()
    assert every.evaluate("box => box.indeterminate")
    grid.press("Shift+ArrowDown")
    page.get_by_text("2 chosen").wait_for()
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("heading", name="run-1-1").wait_for()
    page.get_by_role("heading", name="run-1-0").wait_for()
    page.goto(f"{server.url}/dashboard/trajectories/run-1-1")
    page.get_by_text("How many in 1?").first.wait_for()
    page.get_by_role("link", name="compare with its others").click()
    page.locator(".sides section").first.get_by_role("heading", name="run-1-1").wait_for()


@whole
def test_a_whole_trajectory_is_rated_and_the_rating_taken_back(server, visit):
    page = visit(server, "/trajectories/run-0-0").page
    said = page.get_by_label("Said of the trajectory")
    said.get_by_label("You are").fill("zoe")
    said.get_by_role("button", name="Good").click()
    said.get_by_role("listitem").filter(has_text="zoe says it is good").wait_for()
    page.locator(".undo").get_by_text("Said that it is good").wait_for()
    said.get_by_role("button", name="Score").click()
    said.get_by_label("Score, a number").fill("4.5")
    page.keyboard.press("Enter")
    said.get_by_role("listitem").filter(has_text="zoe rated score: 4.5").wait_for()
    page.locator(".undo").get_by_text("Rated it 4.5").wait_for()
    page.get_by_role("heading", name="run-0-0").click()
    page.keyboard.press("u")
    page.get_by_text("Taken back: Rated it 4.5").wait_for()
    said.get_by_text("rated score").wait_for(state="hidden")
    page.keyboard.press("u")
    said.get_by_text("says it is good").wait_for(state="hidden")
    said.get_by_role("button", name="Comment").click()
    said.get_by_role("textbox", name="Comment").fill("terse")
    page.keyboard.press("Enter")
    said.get_by_role("listitem").filter(has_text="zoe commented").get_by_text("terse").wait_for()
    found = [(one.kind, one.name, one.value) for one in server.pool.list_feedback(trajectory_id="run-0-0").items]
    assert found == [
        ("rating", "thumb", 1), ("rating", "score", 4.5), ("rating", "score", None), ("rating", "thumb", None),
        ("comment", None, None),
    ]  # fmt: skip


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


@whole
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
    page.get_by_text("need a key with the scope write, Delete one with admin").wait_for()
    assert page.get_by_role("button", name="Export").is_enabled()


def agents(pool):
    """A run with a tool, a retry, a sub-agent, a compaction and a prompt that the template renders otherwise."""
    call = ToolCall(id="c1", function=FunctionCall(name="read", arguments='{"path": "a.py"}'))
    asks = Message(role="user", content="Fix it.")
    reads = Message(role="assistant", content=None, reasoning="I read **first**.", tool_calls=(call,))
    picture = pool.put_media(PNG, "image/png")
    result = Message(role="tool", content='{"lines": [1, {"text": "<b>x</b>"}]}', tool_call_id="c1")
    shows = Message(role="user", content=(TextPart("Look:"), MediaPart(picture, "image/png")))
    done = Message(role="assistant", content="Done.\n\n```python\nprint(1)\n```")
    common = {"trajectory_id": "agents", "latency_ms": 120.0, "logprob_space": "raw", "token_source": "submitted"}
    steps = [
        Step(step_id="a", prompt_messages=[asks], response_message=reads, prompt_ids=[1, 2, 3], response_ids=[4, 5],
             response_logprobs=[-0.1, -3.0], tools=[{"type": "function", "function": {"name": "read"}}], **common),
        Step(step_id="b", parent_step_id="a", prompt_messages=[asks, reads, result, shows], response_message=done,
             prompt_ids=[1, 2, 3, 4, 9, 7], response_ids=[8], response_logprobs=[-0.5], fork_reason="template",
             labels={"quality": "good"}, **common),
        Step(step_id="r", parent_step_id="a", prompt_messages=[asks, reads, result], response_message=done,
             prompt_ids=[1, 2, 3, 4, 5, 7], response_ids=[8], response_mask=[0], fork_reason="retry", **common),
        Step(step_id="s", agent="helper", prompt_messages=[Message(role="user", content="Help.")], prompt_ids=[6],
             response_message=done, response_ids=[8], fork_reason="subagent", **common),
        Step(step_id="c", parent_step_id="b", prompt_messages=[Message(role="user", content="In short:\nfix it.")],
             response_message=done, prompt_ids=[1, 6], response_ids=[8], fork_reason="compaction", **common),
    ]  # fmt: skip
    results = pool.append_steps(steps)
    assert [each.outcome for each in results] == ["stored"] * 5, results
    pool.complete_trajectory("agents", "finished", 0.5)
    pool.add_signals(
        [
            Reward(value=0.25, step_id="a", name="tests", source="pytest"),
            Annotation(name="entropy", step_id="a", values=[0.5, 2.5], source="teacher"),
        ]
    )


def test_branches_messages_and_what_is_known_of_a_step(server, visit):
    agents(server.pool)
    page = visit(server, "/trajectories/agents?step=b").page
    page.locator(".message").first.wait_for()
    steps = page.get_by_role("option")
    page.locator(".fork").nth(3).wait_for()
    assert [each.strip() for each in page.locator(".fork").all_inner_texts()] == [
        "template", "retry", "subagent", "compaction",
    ]  # fmt: skip
    assert len(set(page.locator(".lanes .dot").evaluate_all("dots => dots.map(dot => dot.getAttribute('cx'))"))) > 1
    called = page.locator(".call")
    called.locator(".json-text", has_text="a.py").wait_for()
    called.locator(".call-result").get_by_text("lines").wait_for()
    assert page.locator(".message.tool").count() == 0
    assert page.locator(".pool-image").evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    assert page.locator(".pool-image").get_attribute("src").startswith("blob:")
    steps.first.click()
    page.get_by_text("Thinking").click()
    assert page.locator(".thinking strong").inner_text() == "first"
    page.get_by_role("tab", name="facts").click()
    page.get_by_role("row", name=re.compile("tests.*0.25.*this step.*pytest")).wait_for()
    page.get_by_role("row", name=re.compile("reward.*0.5.*the trajectory")).wait_for()
    page.get_by_label("By").select_option("leave_one_out")
    page.get_by_text("among 1 trajectory as they stand now").wait_for()
    page.get_by_role("link", name="colour tokens by it").click()
    page.locator(".token.s5[title*='value 2.5']").wait_for()
    page.locator(".token.s0[title*='value 0.5']").wait_for()
    page.get_by_role("listbox", name="Steps").focus()
    page.keyboard.press("End")
    page.get_by_role("option", selected=True).filter(has_text="compaction").wait_for()
    assert asked(page)["step"] == "c"
    page.keyboard.press("p")
    page.get_by_role("option", selected=True).filter(has_text="template").wait_for()
    assert asked(page)["step"] == "b"
    reply = Message(role="assistant", content="Yes.")
    waits = Step(
        step_id="w", trajectory_id="waits", prompt_ids=[151_642] * 20, response_ids=[3], response_message=reply
    )
    server.pool.append_steps([waits])
    server.pool.complete_trajectory("waits", "finished")
    page.goto(f"{server.url}/dashboard/trajectories/waits?tab=tokens")
    page.locator(".token-row").first.wait_for()
    assert page.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.tokens'))")
    page.get_by_role("tab", name="messages").click()
    page.get_by_role("link", name="Rate or correct").click()
    page.get_by_role("button", name="Rate", exact=True).wait_for()
    page.get_by_text("waits for a reward; methods that need none (sft) can take it now").wait_for()
    page.get_by_text("a rating does not change the reward").wait_for()
    page.get_by_role("button", name="Reward", exact=True).click()
    page.get_by_label("Reward, a number").fill("0.75")
    page.get_by_role("button", name="Give it").click()
    page.locator(".facts .ready").wait_for()
    page.get_by_role("row", name=re.compile("reward.*0.75.*the trajectory.*dashboard")).wait_for()
    page.get_by_text("waits for a reward").wait_for(state="hidden")
    assert server.pool.get_trajectory("waits").reward == 0.75


@whole
def test_a_broken_prefix_and_what_changed_are_shown(server, visit):
    agents(server.pool)
    page = visit(server, "/trajectories/agents?step=b&tab=tokens").page
    page.get_by_text("has 4 of its 6 ids from the step before; there 9 stands where 5 stood").wait_for()
    assert page.locator(".token-row .broken").inner_text() == "9"
    page.get_by_text("renders history otherwise").wait_for()
    page.get_by_role("option").nth(2).click()
    page.get_by_text("goes on from all 5 ids").wait_for()
    assert page.locator(".token-row .masked").inner_text() == "8"
    page.get_by_label("Show").select_option("text")
    page.get_by_text("no tokenizer of the vocabulary").wait_for()
    page.get_by_role("tab", name="diff").click()
    page.get_by_text("2 messages are the same").wait_for()
    page.get_by_role("option").nth(4).click()
    page.get_by_label("No longer there").wait_for()
    page.get_by_label("New here").get_by_text("In short").wait_for()
    page.get_by_role("tab", name="call").click()
    page.get_by_role("button", name="curl").click()
    page.locator(".exchange", has_text="$AGENTWORLD_API_KEY").wait_for()
    page.get_by_role("button", name="Python").click()
    page.locator(".exchange", has_text='os.environ.get("AGENTWORLD_API_KEY"').wait_for()


def test_ids_are_read_as_text_where_the_server_has_the_vocabulary(visit):
    model = ModelSettings(name="m", upstream="http://127.0.0.1:9", driver="vllm", tokenizer="byte", tokens="token-in")
    tokenizer = load_tokenizer("byte")
    ids = tokenizer.encode("<b>a b</b>\n\u00e9")
    with Serving(models=(model,)) as server:
        step = Step(
            step_id="s", trajectory_id="t", vocabulary=tokenizer.digest.hex(), prompt_ids=ids, response_ids=[65]
        )
        server.pool.append_steps([step])
        page = visit(server, "/trajectories/t?tab=tokens&show=text").page
        page.locator(".token.piece", has_text="⏎").wait_for()
        shown = page.locator(".token-row .token").all_inner_texts()
        assert "".join(shown) == "<b>a·b</b>⏎\\xc3\\xa9A"
        assert page.locator(".tokens b").count() == 0
        page.get_by_label("Show").select_option("ids")
        page.locator(".token-row .token").first.get_by_text(str(ids[0]), exact=True).wait_for()
        page.goto("about:blank")


@whole
def test_a_step_is_rated_labelled_and_corrected(server, visit):
    agents(server.pool)
    page = visit(server, "/trajectories/agents?step=s&tab=facts").page
    feedback = page.get_by_label("Feedback")
    feedback.get_by_role("button", name="Rate").click()
    feedback.get_by_label("Value").fill("4")
    feedback.get_by_role("button", name="Send").click()
    feedback.get_by_role("listitem").filter(has_text="dashboard rated: 4").wait_for()
    feedback.get_by_role("button", name="Label").click()
    feedback.get_by_label("Name").fill("quality")
    feedback.get_by_label("Value").fill("bad")
    feedback.get_by_role("button", name="Send").click()
    page.locator(".json-text", has_text="bad").wait_for()
    feedback.get_by_role("button", name="Correct the reply").click()
    assert feedback.get_by_role("button", name="Send").is_disabled()
    feedback.get_by_label("What should have been said").fill("Not done.")
    feedback.get_by_label("Comment").fill("it was not")
    feedback.get_by_label("You are").fill("ann")
    feedback.get_by_role("button", name="Send").click()
    corrected = feedback.get_by_role("listitem").filter(has_text="ann corrected the reply")
    assert corrected.locator("del").first.inner_text().startswith("Done.")
    assert corrected.locator("ins").first.inner_text() == "Not done."
    page.get_by_role("tab", name="messages").click()
    page.get_by_role("listitem").filter(has_text="ann corrected the reply").get_by_text("it was not").wait_for()
    said = {each.kind: each for each in server.pool.list_feedback(step_id="s").items}
    assert said["rating"].value == 4
    assert server.pool.get_step("s").labels == {"quality": "bad"}
    assert said["correction"].value["content"] == "Not done."
    assert (said["correction"].comment, said["correction"].source) == ("it was not", "ann")


def test_hostile_content_of_every_kind_is_text(server, visit):
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    huge = "<img src=x onerror=alert('hit')> [x](javascript:alert('hit')) " * 160_000
    svg = server.pool.put_media(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "image/svg+xml")
    call = ToolCall(id=HOSTILE, function=FunctionCall(name=HOSTILE, arguments=deep))
    step = Step(
        step_id="h",
        trajectory_id="hostile",
        agent=HOSTILE,
        prompt_messages=[
            Message(role="user", content=(TextPart(huge), MediaPart(svg, "image/svg+xml"))),
            Message(role="assistant", content=HOSTILE, tool_calls=(call,)),
            Message(role="tool", content='{"' + HOSTILE.replace('"', "'") + '": "<b>"}', tool_call_id=HOSTILE),
        ],
        response_message=Message(role="assistant", content=HOSTILE, reasoning=HOSTILE),
        labels={"<img src=x onerror=alert(1)>": HOSTILE},
        prompt_ids=[1],
        response_ids=[2],
    )
    [result] = server.pool.append_steps([step])
    assert result.outcome == "stored", result
    server.pool.complete_trajectory("hostile", "finished", 1.0)
    feedback = Feedback(kind="comment", step_id="h", comment=HOSTILE, source="<img src=x onerror=alert(1)>")
    server.pool.add_signals([feedback, Reward(value=1.0, step_id="h", name="<b>", details={HOSTILE: HOSTILE})])
    page = visit(server, "/trajectories/hostile").page
    found = "main script, main img, main iframe, main svg[onload], main a[href^=javascript], main [onerror], main b"
    for tab, shown in {
        "messages": ".message.assistant .call", "tokens": ".token-row", "diff": "#step-panel p",
        "facts": ".step-facts table", "call": ".exchange", "record": ".json",
    }.items():  # fmt: skip
        page.get_by_role("tab", name=tab).click()
        page.locator(shown).first.wait_for()
        assert page.locator(found).count() == 0, tab
        assert "\u202e" not in page.locator("main").inner_text(), tab
    page.goto(f"{server.url}/dashboard/trajectories?facets=on&columns=agent,labels")
    page.get_by_label("Facets").get_by_role("button", name=re.compile("^<script>")).click()
    page.get_by_text("1 shown").wait_for()
    assert page.locator(found).count() == 0


@whole
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_part_holds_to_the_rules_of_accessibility(server, visit, scheme):
    agents(server.pool)
    page = visit(server, color_scheme=scheme).page
    views = {
        "/trajectories?facets=on&actions=on": ".facets button",
        "/trajectories/agents?step=b": ".call",
        "/trajectories/agents?step=b&tab=tokens": ".token-row",
        "/trajectories/agents?step=c&tab=diff": ".diff-new",
        "/trajectories/agents?step=a&tab=facts": ".step-facts table",
        "/trajectories/agents?step=a&tab=call": ".exchange",
        "/trajectories/agents?step=a&tab=record": ".json",
    }
    assert broken_rules(page, server, views) == {}
