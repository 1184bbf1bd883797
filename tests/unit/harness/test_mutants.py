import ast
import functools
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalog import CATALOG
from tests.mutants.mutant import Mutant, Patch, PatchError
from tests.mutants.trial import COPIED, Fate, Laboratory, Run

ROOT = Path(__file__).parents[3]
every_mutant = pytest.mark.parametrize("mutant", CATALOG, ids=[mutant.name for mutant in CATALOG])


@every_mutant
def test_patches_apply(mutant: Mutant) -> None:
    """Each old text occurs exactly once in the copied sources, and the result is different. Python code compiles."""
    for file, source in mutant.sources(ROOT).items():
        assert file.split("/")[0] in COPIED
        before = (ROOT / file).read_text("utf-8")
        if not file.endswith(".py"):
            assert mutant.native is file.endswith((".c", ".h"))
            assert source != before
            continue

        assert ast.dump(ast.parse(source)) != ast.dump(ast.parse(before))


@every_mutant
def test_named_tests_exist(mutant: Mutant) -> None:
    """Each test that should catch the bug is a function of its module."""
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _functions(file)


@functools.cache
def _functions(file: str) -> set[str]:
    body = ast.parse((ROOT / file).read_text("utf-8")).body
    return {stmt.name for stmt in body if isinstance(stmt, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_names_are_unique() -> None:
    names = Counter(mutant.name for mutant in CATALOG)

    assert [name for name, count in names.items() if count > 1] == []


def test_patches_of_one_file(tmp_path: Path) -> None:
    """Several patches of one file are applied, one upon the other; a text that is gone or ambiguous is named and not guessed at."""
    (tmp_path / "a.py").write_text("x = 1\nx = 1\ny = 1\n")
    for old, count in (("z = 1\n", 0), ("x = 1\n", 2)):
        with pytest.raises(PatchError, match=f"m: stands {count} times in a.py"):
            Mutant("m", "Nothing.", (Patch("a.py", old, "x = 2\n"),), "t").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\nx = 1\ny = 1\n"

    patches = (Patch("a.py", "x = 1\ny = 1\n", "y = 1\n"), Patch("a.py", "y = 1\n", "y = 2\n"))
    Mutant("m", "Nothing.", patches, "t").apply(tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\ny = 2\n"


@pytest.mark.parametrize(
    ("exit_code", "failures", "errors", "fate"),
    [
        (0, [], [], Fate.SURVIVED),
        (1, ["assert 1 == 2"], [], Fate.CAUGHT),
        (1, ["Failed: Timeout (>120.0s) from pytest-timeout."], [], Fate.CAUGHT),
        (1, ["KeyError: 'x'", "assert 1 == 2"], [], Fate.CAUGHT),
        (1, ["KeyError: 'x'"], [], Fate.BROKEN),
        (1, ["AssertionError: retrying: NameError: name 'x' is not defined"], [], Fate.BROKEN),
        (1, [], ["failed on setup: the broker did not answer"], Fate.BROKEN),
        (2, [], ["collection failure"], Fate.BROKEN),
        (None, [], [], Fate.BROKEN),
    ],
)
def test_denial_catches(exit_code: int | None, failures: list[str], errors: list[str], fate: Fate) -> None:
    """A test catches a bug by denying what it sees; what falls over, cannot start or is not found catches nothing."""
    assert Laboratory.fate(Run(exit_code, failures, errors, ""))[0] is fate


def test_trial(tmp_path: Path) -> None:
    """A bug is in the copy, is caught there, and is gone with it; a bug that a test does not see survives it."""
    patch = Patch("agents/decision/partitioner.py", "murmur2(key) & 0x7FFFFFFF", "murmur2(key)")
    seen, unseen = (
        "tests/unit/agents/decision/test_partitioner.py::test_sign_of_the_hash",
        "tests/unit/agents/decision/test_partitioner.py::test_empty_key",
    )
    before = (ROOT / "agents/decision/partitioner.py").read_bytes()
    laboratory = Laboratory(tmp_path)

    assert laboratory.unmutated([seen, unseen]).exit_code == 0
    assert laboratory.judge(Mutant("m", "", (patch,), seen)).fate is Fate.CAUGHT
    assert laboratory.judge(Mutant("m", "", (patch,), seen, (unseen,))).fate is Fate.SURVIVED
    without = Mutant("m", "", (Patch("agents/decision/partitioner.py", "gone", ""),), seen)
    assert laboratory.judge(without).fate is Fate.BROKEN
    assert (ROOT / "agents/decision/partitioner.py").read_bytes() == before
