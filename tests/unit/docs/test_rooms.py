"""ARCHITECTURE.md and the README of each room name files that exist, and stay short."""

import re

import pytest

from tests.support.checkout import ROOT

ROOMS = ("agents", "app", "native", "reconcile", "ringfence_client", "ringfence_kafka", "tables")
TEST_ROOMS = ("tests/harness", "tests/simulator", "tests/support")
MODULES_MAX = {"agents/bridge": 16}
"""Modules of one folder; of others 15."""
LINES_MAX = 76_000


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", *(f"{room}/README.md" for room in ROOMS)])
def test_named_files_exist(page: str) -> None:
    """A path is named from the root, or from the folder of the page."""
    named = re.findall(r"`([\w./]+(?:/|\.(?:py|c|h|md|toml|yml)))`", (ROOT / page).read_text("utf-8"))

    assert named
    assert [
        path for path in named if not any((base / path).exists() for base in (ROOT, (ROOT / page).parent))
    ] == []


def test_pages_are_short() -> None:
    """ARCHITECTURE.md is one page, the README of a room as well, and a release has at most 500 words."""
    assert len((ROOT / "ARCHITECTURE.md").read_text("utf-8").split()) <= 750
    long = {room: len((ROOT / room / "README.md").read_text("utf-8").splitlines()) for room in ROOMS}

    assert {room: lines for room, lines in long.items() if lines > 60} == {}
    releases = (ROOT / "CHANGELOG.md").read_text("utf-8").split("\n## ")[1:]
    assert releases
    assert [release.split()[0] for release in releases if len(release.split()) > 500] == []


def test_folders_are_small() -> None:
    """A reader sees the modules of a folder at a glance."""
    counts = {
        str(folder.relative_to(ROOT)): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for room in (*ROOMS, *TEST_ROOMS)
        for folder in ((ROOT / room), *(ROOT / room).rglob("*/"))
    }

    assert {folder: count for folder, count in counts.items() if count > MODULES_MAX.get(folder, 15)} == {}


def test_the_product_does_not_grow_unnoticed() -> None:
    """ADR 55: a change that needs more lines gives its reason in a decision record."""
    lines = sum(len(path.read_bytes().splitlines()) for room in ROOMS for path in (ROOT / room).rglob("*.py"))

    assert lines <= LINES_MAX
