"""The dashboard in headless Chromium over a large pool: when its lists appear, what filters take, what memory it holds.

    python -m benchmarks.dashboard [--steps 1000000] [--pool FILE] [--chromium PATH] [--json]

The pool has `steps` / 10 trajectories of ten steps, one of 2,000 steps with messages and ids, and a step of 200,000
ids. `--pool` keeps it in a file, and takes it from there the next time. Times are those of the page's own clock, from
the beginning of the navigation until what is looked for is in the document. Exit code 1 where a figure falls short.
Needs the page (`make dashboard`), Chromium, and Playwright for Python, as `make test-browser` does.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from agentworld.bench.filling import fill
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.errors import NotFoundError
from agentworld.factory import EmbeddedPool, open_pool
from agentworld.records import (
    BatchSpec,
    Feedback,
    FunctionCall,
    Message,
    Metrics,
    NewReview,
    NewTrajectory,
    Selection,
    Step,
    ToolCall,
)

TURNS = 10
LONG, WIDE = "long-trajectory", "wide-step"
LONG_STEPS, LONG_HISTORY = 2_000, 200
WIDE_PROMPT, WIDE_REPLY = 150_000, 50_000
SCREENS = 150
FILTERS = (
    "reward >= 0.99",
    "status == 'failed'",
    "channel == 'val'",
    "group_id == 'g17'",
    "ready and channel == 'train'",
    "user == 'u7'",
    "review == 'waiting'",
)
# When each of these was first in the document.
WATCH = """
window.seenAt = {};
const wanted = %s;
const look = () => {
  for (const selector of wanted)
    if (!(selector in window.seenAt) && document.querySelector(selector)) window.seenAt[selector] = performance.now();
};
new MutationObserver(look).observe(document, { childList: true, subtree: true });
"""
ROW = ".rows .row:not(.head)"
# Of each view the first thing of the pool's that it shows: a row, a count.
VIEWS = {
    "lifecycle": ("/", ".stages li"),
    "trajectories": ("/trajectories", ROW),
    "trajectories, prompts and reviews": ("/trajectories", ".rows .review.waiting"),
    "trajectories by reward": ("/trajectories?sort=-reward", ROW),
    "trajectories that wait for reviews": ("/trajectories?where=review+%3D%3D+%27waiting%27", ROW),
    "collection, feed": ("/collection", ".feed li"),
    "collection, in progress": ("/collection", "main td"),
    "curation, queue": ("/curation", ".queue-counts strong"),
    "curation, groups to compare": ("/curation?tab=compare", ".members li"),
    "curation, rules": ("/curation?tab=rules", "textarea"),
    "curation, labels": ("/curation?tab=checks", "main td"),
    "datasets": ("/datasets", "main td"),
    "consumption": ("/consumption", "main td"),
    "optimization, savings": ("/optimization", "main td, main .empty"),
    "runs": ("/runs", "main td"),
    "settings": ("/settings", "main dd"),
}
# Scrolls by most of a screen a frame, and counts frames in which a part of the list had no row.
SCROLL = """
async (screens) => {
  const box = document.querySelector(".rows");
  let blank = 0;
  const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
  for (let screen = 0; screen < screens; screen++) {
    box.scrollTop += box.clientHeight * 0.8;
    await frame();
    const { top, bottom } = box.getBoundingClientRect();
    const rows = [...box.querySelectorAll(".row:not(.head)")].map((row) => row.getBoundingClientRect());
    const low = Math.max(...rows.map((row) => row.bottom));
    const high = Math.min(...rows.map((row) => row.top));
    if (low < bottom - 34 || high > top + 34) blank++;
  }
  return [blank, Number(box.getAttribute("aria-rowcount")) - 1];
}
"""


class Figure(NamedTuple):
    """One measurement: what, in which unit, and the most that it may be (None: nothing is asked of it)."""

    name: str
    value: float
    unit: str
    most: float | None = None

    @property
    def short(self) -> bool:
        """Whether it is more than it may be."""
        return self.most is not None and self.value > self.most


def prepare(url: str, steps: int) -> None:
    """Fill the pool with what it does not hold yet."""
    pool = open_pool(url)
    try:
        if pool.stats().steps == 0:
            fill(pool, steps, seed=1, turns=TURNS)
        for name, make in ((LONG, long_steps), (WIDE, wide_steps)):
            try:
                pool.get_trajectory(name)
            except NotFoundError:
                made = make()
                for begin in range(0, len(made), 100):
                    pool.append_steps(made[begin : begin + 100])
                pool.complete_trajectory(name, "finished", 1.0)
        around(pool)
    finally:
        pool.close()


def around(pool: EmbeddedPool) -> None:
    """What other views than the list show: reviews, labels, a version, a batch, losses, an open trajectory."""
    if not pool.list_reviews(limit=1).items:
        newest = [one.trajectory_id for one in pool.list_trajectories(order="newest", limit=1000).items]
        pool.add_reviews([NewReview(trajectory_id=one, reason="look") for one in newest])
        pool.add_feedback([Feedback(kind="label", name="quality", value="good", trajectory_id=one) for one in newest])
        pool.create_trajectory(NewTrajectory(trajectory_id="open"))
    if not pool.list_datasets(limit=1).items:
        create_dataset(pool, "some", Selection(where="user == 'u7'", channel=None))
    if not pool.stats().consumers:
        batch = pool.lease(BatchSpec(unit="trajectory", size=64, require=()), "trainer")
        if batch is not None:
            pool.ack(batch.batch_id, batch.epoch)
        pool.add_metrics([Metrics(run="fit", step=step, values={"loss": 1 / step}) for step in range(1, 1001)])


def long_steps() -> list[Step]:
    """An agent that calls a tool 2,000 times; its history begins anew every 200 turns, as after a compaction."""
    steps: list[Step] = []
    messages: list[Message] = []
    ids: list[int] = []
    for number in range(LONG_STEPS):
        if number % LONG_HISTORY == 0:
            messages = [Message(role="user", content=f"Find all faults. So far: {number // LONG_HISTORY}.")]
            ids = [number % 5000, 1, 2, 3]
        call = ToolCall(id=f"c{number}", function=FunctionCall(name="read", arguments=f'{{"path":"src/{number}.py"}}'))
        reply = Message(role="assistant", content=f"Now **{number}**.", tool_calls=(call,))
        reply_ids = [number % 5000, *range(10, 29)]
        steps.append(
            Step(
                step_id=f"{LONG}-{number}",
                trajectory_id=LONG,
                prompt_messages=list(messages),
                response_message=reply,
                prompt_ids=list(ids),
                response_ids=reply_ids,
                response_logprobs=[-0.1] * len(reply_ids),
                logprob_space="raw",
                latency_ms=float(100 + number % 400),
            )
        )
        result = Message(role="tool", content=f'{{"line": {number}, "text": ["a", "b"]}}', tool_call_id=f"c{number}")
        messages += [reply, result]
        ids += [*reply_ids, 30, number % 5000, 31]
    return steps


def wide_steps() -> list[Step]:
    """A step of 200,000 ids, and the one before it, which has two thirds of its prompt."""
    prompt = [(number * 7919) % 150_000 for number in range(WIDE_PROMPT)]
    reply = [(number * 104_729) % 150_000 for number in range(WIDE_REPLY)]
    text = "word " * WIDE_PROMPT
    shared = WIDE_PROMPT * 2 // 3
    common: dict[str, Any] = {"trajectory_id": WIDE, "logprob_space": "raw"}
    first = Step(step_id=f"{WIDE}-0", prompt_ids=prompt[:shared], response_ids=[1], response_logprobs=[-0.5], **common)
    second = Step(
        step_id=f"{WIDE}-1",
        prompt_ids=prompt,
        response_ids=reply,
        response_logprobs=[-(number % 70) / 10 for number in range(WIDE_REPLY)],
        prompt_messages=[Message(role="user", content=text)],
        response_message=Message(role="assistant", content=text[: 5 * WIDE_REPLY]),
        **common,
    )
    return [first, second]


def measure(url: str, chromium: str) -> Iterator[Figure]:
    """All figures of a server at `url`, each as soon as it is there."""
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info"]
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=arguments)
        try:
            for name, (path, shown) in VIEWS.items():
                yield paint(browser, url, name, path, shown)
            yield from filters(browser, url)
            yield from scrolling(browser, url)
            yield from opening(browser, url)
        finally:
            browser.close()


def visit(browser: Any, url: str, path: str, *shown: str) -> Any:
    """A new page at `path`, once all of `shown` are there."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    # From the beginning, and by the thread's own clock: it counts what it works, whatever else the machine does.
    page.agentworld = page.context.new_cdp_session(page)
    page.agentworld.send("Performance.enable", {"timeDomain": "threadTicks"})
    page.add_init_script(WATCH % json.dumps(shown))
    page.goto(f"{url}/dashboard{path}")
    for selector in shown:
        page.locator(selector).first.wait_for(timeout=60_000)
    return page


def seen(page: Any, selector: str) -> float:
    """Seconds from the beginning of the navigation until the selector was in the document."""
    return float(page.evaluate("selector => window.seenAt[selector]", selector)) / 1000


def paint(browser: Any, url: str, name: str, path: str, shown: str) -> Figure:
    """The best of three first visits: nothing is kept from one to the next."""
    times = []
    for _ in range(3):
        page = visit(browser, url, path, shown)
        times.append(seen(page, shown))
        page.context.close()
    return Figure(f"{name}: first useful paint", min(times), "s", 1.0)


def filters(browser: Any, url: str) -> list[Figure]:
    """What the server takes for the first page of each filter, as the browser waits for it, and for facets."""
    page = visit(browser, url, "/trajectories", ROW)
    found = []
    for where in FILTERS:
        field = page.get_by_role("combobox", name="Filter")
        field.fill(where)
        # So that the expression's check, which goes out by itself, does not stand beside it.
        with page.expect_response(lambda reply: "/explain" in reply.url):
            pass
        with page.expect_response(lambda reply: "/trajectories?" in reply.url and "where" in reply.url) as answered:
            field.press("Enter")
        answered.value.finished()
        timing = answered.value.request.timing
        found.append(Figure(f"filter {where}", (timing["responseStart"] - timing["requestStart"]) / 1000, "s", 0.3))
    with page.expect_response(lambda reply: "/facets" in reply.url) as answered:
        page.goto(f"{url}/dashboard/trajectories?facets=on")
    answered.value.finished()
    timing = answered.value.request.timing
    found.append(Figure("facets of 10,000", (timing["responseStart"] - timing["requestStart"]) / 1000, "s"))
    page.context.close()
    return found


def scrolling(browser: Any, url: str) -> list[Figure]:
    """Blank frames and memory of a long way down the list, of scripts and of the page's process."""
    page = visit(browser, url, "/trajectories", ROW)
    blank, loaded = page.evaluate(SCROLL, SCREENS)
    while loaded < 20_000:
        before = loaded
        _, loaded = page.evaluate(SCROLL, SCREENS)
        if loaded == before:
            break
    figures = [
        Figure("scrolling: frames with a blank part", blank, f"of {SCREENS}", 0),
        Figure("scrolling: rows loaded", loaded, "rows"),
        *memory(browser, page, "scrolled list"),
    ]
    page.context.close()
    return figures


def memory(browser: Any, page: Any, name: str) -> list[Figure]:
    """What scripts hold after a collection, and what the page's process has for itself."""
    page.agentworld.send("HeapProfiler.collectGarbage")
    figures = [Figure(f"{name}: memory of scripts", _metrics(page)["JSHeapUsedSize"] / 1e6, "MB", 300)]
    processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [_own_memory(each["id"]) for each in processes if each["type"] == "renderer"]
    if any(sizes):
        figures.append(Figure(f"{name}: memory of the page's process", max(sizes) / 1e6, "MB", 300))
    return figures


def busy(page: Any) -> float:
    """Seconds that the page's main thread has worked."""
    return _metrics(page)["TaskDuration"]


def _metrics(page: Any) -> dict[str, float]:
    return {each["name"]: each["value"] for each in page.agentworld.send("Performance.getMetrics")["metrics"]}


def _own_memory(pid: int) -> int:
    """Bytes of a process, shared ones in part; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def opening(browser: Any, url: str) -> list[Figure]:
    """A trajectory of 2,000 steps at its end, and a step of 200,000 ids, as ids and as messages."""
    cases = (
        (f"trajectory of {LONG_STEPS:,} steps", f"/trajectories/{LONG}?step={LONG}-{LONG_STEPS - 1}", ".message"),
        ("step of 200,000 ids, as ids", f"/trajectories/{WIDE}?step={WIDE}-1&tab=tokens", ".token-row"),
        ("step of 200,000 ids, as messages", f"/trajectories/{WIDE}?step={WIDE}-1", ".message"),
    )
    figures = []
    for name, path, shown in cases:
        page = visit(browser, url, path, shown)
        figures.append(Figure(f"{name}: opened", seen(page, shown), "s", 2.0))
        figures += [Figure(f"{name}: work of the page", busy(page), "s"), *memory(browser, page, name)[:1]]
        page.context.close()
    return figures


def main() -> int:
    """Fill, serve, measure, print."""
    parser = argparse.ArgumentParser(prog="benchmarks.dashboard")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--pool", type=Path)
    parser.add_argument("--chromium", default=os.environ.get("CHROMIUM") or shutil.which("chromium"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.chromium is None:
        parser.error("there is no Chromium; name one with --chromium")
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        file = (options.pool or Path(folder) / "pool.db").absolute()
        prepare(f"sqlite:///{file}", options.steps)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "agentworld", "serve", "--pool", f"sqlite:///{file}", "--port", str(port)]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(url, server)
            for figure in measure(url, options.chromium):
                figures.append(figure)
                if not options.json:
                    print(told(figure), flush=True)
        finally:
            server.terminate()
            server.wait(timeout=30)
    if options.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=1))
    return int(any(figure.short for figure in figures))


def told(figure: Figure) -> str:
    """One line of the table."""
    asked = "" if figure.most is None else f"  (at most {figure.most:g}{', FALLS SHORT' if figure.short else ''})"
    return f"{figure.name:48} {figure.value:10.3f} {figure.unit}{asked}"


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers."""
    until = time.monotonic() + 60
    while time.monotonic() < until and server.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise SystemExit("the server does not answer")


if __name__ == "__main__":
    sys.exit(main())
