"""What axe says of views in a browser."""

from pathlib import Path

from tests.browser.driving import until_live

AXE = Path(__file__).parents[2] / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}}
# What is dark differs by its colours alone.
LIGHT_AND_DARK = {"light": RULES, "dark": {"runOnly": ["color-contrast"]}}


def faults(page):
    """What axe says of the page as it stands."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("rules => axe.run(rules)", RULES)["violations"]
    return {each["id"]: [one["target"] for one in each["nodes"]][:3] for each in found}


def broken_rules(page, server, views, looks=None):
    """Rules that views break, with three places of each. `views`: paths with what shows that they are there; `looks`:
    rules by colour scheme, all of them in the page's own without it.
    """
    broken = {}
    for path, shown in views.items():
        page.goto(f"{server.url}/dashboard{path}")
        page.locator(f"{shown}:visible").first.wait_for()
        until_live(page)
        page.evaluate(AXE.read_text())
        for scheme, rules in (looks or {"": RULES}).items():
            if scheme:
                page.emulate_media(color_scheme=scheme)
            found = page.evaluate("rules => axe.run(rules)", rules)["violations"]
            broken |= {f"{scheme} {path} {each['id']}": [one["target"] for one in each["nodes"]][:3] for each in found}
    return broken
