"""Pictures of views, in light and dark and of some also on a phone, on a pool that agents fill at once:
`python -m tests.browser.screenshots FOLDER [VIEW...]`, or `make screenshots`.
"""

import itertools
import math
import random
import sys
from pathlib import Path

from agentworld.api.page import is_built
from agentworld.config import LabelScheme, ModelSettings
from agentworld.curation.datasets.selecting import create_dataset
from agentworld.records import BatchSpec, CurationPolicy, Exchange, Feedback, Metrics, Policy, Selection, Splits
from agentworld.testing import ScriptedEngine
from tests.api.serving import Serving
from tests.browser.conftest import CHROMIUM
from tests.browser.driving import ARGUMENTS, Visit, until_live

SIZES = {"": (1280, 800), "-phone": (390, 844)}
VIEWS = {
    "lifecycle": ("/", ".stages"),
    "collection": ("/collection", ".feed li"),
    "collection-agents": ("/collection?tab=agents", "td"),
    "collection-engines": ("/collection?tab=engines", "td"),
    "collection-errors": ("/collection?tab=errors", "td"),
    "trajectories": ("/trajectories", ".row a"),
    "trajectory": ("/trajectories/{trajectory}", ".message"),
    "curation": ("/curation", ".message"),
    "curation-compare": ("/curation?tab=compare&group={group}", ".message"),
    "curation-rules": ("/curation?tab=rules", "textarea"),
    "curation-checks": ("/curation?tab=checks", "td"),
    "curation-agreement": ("/curation?tab=agreement&name=quality", "td"),
    "datasets": ("/datasets", "td"),
    "dataset": ("/datasets/{version}", "td"),
    "consumption": ("/consumption?consumer=policy", ".chart"),
    "batch": ("/consumption/{batch}", "td"),
    "optimization": ("/optimization?group={group}", ".icicle .node"),
    "optimization-savings": ("/optimization", ".chart"),
    "runs": ("/runs", ".chart"),
    "settings": ("/settings", "td"),
    "settings-keys": ("/settings?tab=keys", "form"),
    "settings-retention": ("/settings?tab=retention", "form"),
}
PHONE = (
    "lifecycle",
    "collection",
    "curation",
    "dataset",
    "datasets",
    "consumption",
    "batch",
    "optimization",
    "runs",
    "settings",
)
SUMS = [(17, 25), (48, 96), (123, 9), (6, 7), (250, 175), (31, 64)]
CALLS = itertools.count()
CALCULATOR = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers",
        "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
    },
}


def answer(request):
    """What the scripted model says: it works through the sum, sometimes wrongly, and a tool's result ends it."""
    drawn = random.Random(next(CALLS))
    first, second = map(int, request.messages[0]["content"].split("What is ")[1].rstrip("?").split(" + "))
    told = first + second + (drawn.choice([0, 0, 1, -10]) if drawn.random() < 0.6 else 0)
    steps = ["units", "tens", "hundreds"][: len(str(told))]
    code = f"```python\nprint({first} + {second})\n```"
    return f"Adding {' and '.join(steps)}: **{told}**.\n\n{code}\n\nThe answer is {told}."


def fill(server, engine):
    """Runs, rewards, labels, batches and versions, as a day of work leaves them."""
    pool = server.pool
    for version in range(6):
        pool.set_policy(Policy("m", "tiny", version))
        engine.set_policy(version, "tiny")
        for number, (first, second) in enumerate(SUMS):
            for rollout in range(4):
                _rollout(server, version, number, rollout, f"What is {first} + {second}?", first + second)
        if version >= 2:
            batch = pool.lease(BatchSpec(method="grpo", groups=4, rollouts=4, require=("tokens",)), "policy")
            if batch is not None and version < 5:
                pool.ack(batch.batch_id, batch.epoch)
        if version == 3:
            given_back = pool.lease(BatchSpec(unit="trajectory", size=6), "sft")
            pool.release(given_back.batch_id, given_back.epoch)
            pool.lease(BatchSpec(unit="trajectory", size=8), "sft")
    pool.append_exchange(
        Exchange(
            exchange_id="failed-1",
            trajectory_id="run-v5-sum0-0",
            dialect="chat",
            model="m",
            requested_model="m",
            messages=[],
            error={
                "code": "engine_timeout",
                "message": "the engine at http://127.0.0.1:8000 did not begin within 30 s",
            },
        )
    )
    _train(pool)
    page = pool.list_trajectories(order="newest", limit=40).items
    said = []
    for number, item in enumerate(page):
        evidence = '{"replies":[1,2],"cycle":1}'
        if number % 7 == 0:
            said.append(_label("check.loop", 3, item.trajectory_id, "check:loop@1", evidence))
        said.append(_label("check.kind", "agentic" if number % 3 else "chat", item.trajectory_id, "check:kind@1"))
        for who in ("anna", "ben", "chris")[: 1 + number % 3]:
            value = "bad" if not item.reward else "usable" if who == "ben" and number % 4 == 0 else "good"
            said.append(_label("quality", value, item.trajectory_id, who))
    pool.add_feedback(said)
    splits = Splits(fractions={"train": 0.8, "test": 0.2})
    first = create_dataset(pool, "sums", Selection(where="created_at < now", splits=splits), note="All that is ready")
    create_dataset(
        pool, "sums", Selection(where="reward >= 1", splits=splits), parents=[first.version], note="Right ones"
    )

    rules = ('when has label.check.loop then review "repeats itself" 0.5', 'when reward < 0.1 then exclude "wrong"')
    pool.set_curation(CurationPolicy(channel="train", name="start", rules=rules))


def _train(pool):
    """The numbers of two trainers."""
    drawn = random.Random(7)
    for run, rate in (("tiny", 0.09), ("tiny-low-rate", 0.03)):
        for step in range(1, 41):
            reward = 1 - 0.8 * math.exp(-rate * step) + drawn.uniform(-0.05, 0.05)
            values = {
                "loss": 0.4 * math.exp(-rate * step) + drawn.uniform(-0.02, 0.02),
                "reward": reward,
                "kl": 0.001 * step,
            }
            pool.add_metrics([Metrics(run=run, step=step, values=values)])
            if step % 10 == 0:
                pool.add_metrics([Metrics(run=run, step=step, values={"reward": reward - 0.05}, kind="evaluation")])


def _label(name, value, trajectory_id, source, comment=None):
    return Feedback(kind="label", name=name, value=value, trajectory_id=trajectory_id, source=source, comment=comment)


def _rollout(server, version, number, rollout, question, right):
    own, group = f"run-v{version}-sum{number}-{rollout}", f"run-v{version}-sum{number}"
    body = {
        "trajectory_id": own, "group_id": group, "group_size": 4, "rollout_index": rollout,
        "agent": ("solver", "checker")[number % 2],
        "task": {"prompt": question, "reference": str(right), "task_set": ("sums", "long-sums")[number // 3]},
        "metadata": {"run": "morning" if version < 3 else "noon"},
    }  # fmt: skip
    server.send("POST", "/api/v1/trajectories", body)
    messages = [{"role": "user", "content": question}]
    for turn in range(1 + rollout % 3):
        asked = {"model": "m", "messages": messages, "temperature": 1.0, "logprobs": True, "tools": [CALCULATOR]}
        status, _, reply = server.send("POST", f"/t/{own}/v1/chat/completions", asked)
        assert status == 200, reply
        messages += [reply["choices"][0]["message"], {"role": "user", "content": f"Are you sure? ({turn})"}]
    if version == 5 and number == 5:
        return  # These go on.
    drawn = random.Random(f"{version} {number} {rollout}")
    reward = float(drawn.random() < 0.25 + 0.12 * version)
    server.send("POST", f"/api/v1/trajectories/{own}/complete", {"status": "finished", "reward": reward})


def main(folder):
    """Write the pictures."""
    from playwright.sync_api import sync_playwright

    if not is_built():
        raise SystemExit("run `make dashboard` first")
    folder.mkdir(parents=True, exist_ok=True)
    schemes = (LabelScheme(name="quality", values=("good", "usable", "bad"), says="How well the task was done"),)
    with ScriptedEngine(answer, model="m") as engine, sync_playwright() as started:
        model = ModelSettings(name="m", upstream=engine.url, driver="builtin", tokens="engine")
        with Serving(models=(model,), labels=schemes) as server:
            fill(server, engine)
            browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            pool = server.pool
            known = {
                "trajectory": "run-v4-sum1-2",
                "group": "run-v4-sum1",
                "version": pool.list_datasets().items[0].version,
                "batch": pool.list_batches(consumer="policy").items[0].batch_id,
            }
            wanted = sys.argv[2:] or list(VIEWS)
            for scheme in ("light", "dark"):
                visit = Visit(browser, server, "/", color_scheme=scheme)
                page = visit.page
                page.evaluate("sessionStorage.setItem('reviewer', 'anna')")
                for size, (width, height) in SIZES.items():
                    page.set_viewport_size({"width": width, "height": height})
                    for name in wanted:
                        if size and (name not in PHONE or scheme == "dark"):
                            continue
                        path, shown = VIEWS[name]
                        page.goto(f"{server.url}/dashboard{path.format(**known)}")
                        page.locator(f"{shown}:visible").first.wait_for()
                        until_live(page)
                        page.wait_for_timeout(400)  # Charts that are asked for beside.
                        page.screenshot(path=folder / f"{name}{size}-{scheme}.png")
                        print(folder / f"{name}{size}-{scheme}.png")
                visit.close()
            browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots"))
