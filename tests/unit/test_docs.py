"""What the documentation says is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("common", "extender", "rebalancer")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def metrics_in_code() -> set[str]:
    made = re.compile(r"metrics\.(?:counter|gauge|histogram)\(\s*\"([a-z_]+)\"")
    sources = [path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = {name for text in sources for name in made.findall(text)}
    return {f"evenkeel_{name}" for name in found} | {"evenkeel_build_info"}


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert set(re.findall(r"^\| `(evenkeel_\w+)`", page, re.MULTILINE)) == metrics_in_code()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_make_targets_that_are_named_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^\$ |`)make ([a-z0-9-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets
