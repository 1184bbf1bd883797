"""tests/PROMISES.md names tests, worlds and planted bugs that exist."""

import re
from functools import cache
from typing import Final

import pytest

from tests.harness.checker.findings import Anomaly
from tests.mutants.catalog import CATALOG
from tests.simulator.worlds import WORLDS
from tests.support.checkout import ROOT

TESTS: Final = ROOT / "tests"
FOLDERS: Final = {
    "unit or property": ("unit", "property"),
    "simulated": ("simulation",),
    "real broker": ("integration", "reconcile"),
    "fault": ("faults",),
}
BUG: Final = "planted bug"
NONE: Final = "—"
NAMED: Final = re.compile(r"`([\w/]+\.py)::(\w+)(?:\[([\w-]+)\])?`(?:, (\w+): ([A-Z-]+))?")
HARNESS: Final = {item.value for item in Anomaly}


def _rows() -> list[dict[str, str]]:
    """Rows of the table by column, without the headings of rooms."""
    lines = [line for line in (TESTS / "PROMISES.md").read_text("utf-8").splitlines() if line.startswith("|")]
    head, _, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert head == ["promise", *FOLDERS, BUG]
    return [dict(zip(head, cells, strict=True)) for cells in body if any(cells[1:])]


@cache
def _source(file: str) -> str:
    return (TESTS / file).read_text("utf-8")


@cache
def _anomalies(world: str) -> frozenset[str]:
    """Names that the checks of a world give to a broken promise."""
    if world not in {"consumers", "sends"}:
        return frozenset(HARNESS)
    folders = {"consumers", world}
    checks = [path for folder in folders for path in (TESTS / "simulator" / folder).glob("*.py")]
    return frozenset(
        name for path in checks for name in re.findall(r'yield f"([A-Z-]+) \{', path.read_text("utf-8"))
    )


@pytest.mark.parametrize("column", FOLDERS)
def test_named_tests_exist(column: str) -> None:
    """A cell names one function in a folder of its level, or has a dash."""
    cells = [row[column] for row in _rows() if row[column] != NONE]

    assert cells
    for cell in cells:
        named = NAMED.fullmatch(cell)
        assert named, cell
        file, function, case = named[1], named[2], named[3]
        assert file.split("/")[0] in FOLDERS[column], cell
        assert function.startswith("test_"), cell
        assert f"def {function}(" in _source(file), cell
        assert case is None or f'"{case}": (' in _source(file), cell


def test_each_promise_has_a_test() -> None:
    """Promises differ, each has a test, each anomaly of a run has a row, and planted bugs exist.

    A simulated cell names a kind of world and an anomaly of its checks.
    """
    rows = _rows()
    promises = [row["promise"] for row in rows]
    bugs = {row[BUG] for row in rows} - {NONE}
    worlds = [(named[4], named[5]) for row in rows if (named := NAMED.fullmatch(row["simulated"]))]

    assert {world for world, _ in worlds} <= set(WORLDS)
    assert [(world, name) for world, name in worlds if name not in _anomalies(world)] == []
    assert len(set(promises)) == len(promises)
    assert [row["promise"] for row in rows if all(row[column] == NONE for column in FOLDERS)] == []
    assert {f"A run names {name}" for name in HARNESS} <= set(promises)
    assert bugs
    assert bugs <= {f"`{mutant.name}`" for mutant in CATALOG}
