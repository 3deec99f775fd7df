"""A browser on a page of a server, and agents that fill its pool."""

from urllib.parse import urlsplit

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TASK = {"prompt": "How many?", "reference": "42"}


def play(server, *, groups=1, rollouts=1, turns=2, key=None, name="run"):
    """Agents at work: each rollout is a trajectory of some turns, rewarded and ended. Returns their ids."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    made = []
    for group in range(groups):
        for rollout in range(rollouts):
            own = f"{name}-{group}-{rollout}"
            body = {"trajectory_id": own, "group_id": f"{name}-g{group}", "group_size": rollouts, "task": TASK}
            _ok(server.send("POST", "/api/v1/trajectories", body, headers))
            messages = [{"role": "user", "content": f"How many in {group}?"}]
            for _ in range(turns):
                asked = {"model": "m", "messages": messages, "temperature": 1.0, "logprobs": True}
                reply = _ok(server.send("POST", f"/t/{own}/v1/chat/completions", asked, headers))
                messages += [reply["choices"][0]["message"], {"role": "user", "content": "And then?"}]
            ending = {"status": "finished", "reward": float(rollout % 2)}
            _ok(server.send("POST", f"/api/v1/trajectories/{own}/complete", ending, headers))
            made.append(own)
    return made


def until_live(page):
    """Wait until the page hears what happens. A tab of one view is called Live too."""
    page.get_by_label("Views").get_by_role("status").get_by_text("Live", exact=True).wait_for()


def _ok(sent):
    status, _, reply = sent
    assert status < 300, reply
    return reply


class Visit:
    """One page in a context of its own. `page` is playwright's."""

    def __init__(self, browser, server, path, **context):
        self._site = urlsplit(server.url).netloc
        self._context = browser.new_context(viewport={"width": 1280, "height": 800}, **context)
        self._context.set_default_timeout(100_000)
        self.page = self._context.new_page()
        self.faults = []
        self.elsewhere = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append(dialog.message), dialog.dismiss()))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)
        self.page.goto(f"{server.url}/dashboard{path}")

    def _heard(self, message):
        # Chromium reports each refused or failed request there too.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)

    def _asked(self, request):
        if urlsplit(request.url).scheme in ("http", "https") and urlsplit(request.url).netloc != self._site:
            self.elsewhere.append(request.url)

    def offline(self, off):
        """Take the network away, or give it back."""
        self._context.set_offline(off)

    def cookies(self):
        """What the browser keeps for the server."""
        return self._context.cookies()

    def close(self):
        """End it; what went wrong is told here."""
        self._context.close()
        assert (self.faults, self.elsewhere) == ([], [])
