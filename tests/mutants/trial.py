"""Runs a test in a copy of the sources, with a bug in them or without."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import native
from tests.mutants.mutant import Mutant, PatchError

ROOT: Final = Path(__file__).parents[2]
COPIED: Final = (
    "agents", "app", "conf", "native", "reconcile", "ringfence_client", "ringfence_kafka", "tables", "tests",
    "LICENSE", "pyproject.toml", "setup.py",
)  # fmt: skip
"""What tests and worker processes need; nothing else is copied."""
TEST_LIMIT_S: Final = 120
"""For one test; several times what the slowest needs on a quiet machine."""
RUN_LIMIT_S: Final = 600
"""For one run of pytest, the broker's start included; past it the run is ended from outside."""
_WITHOUT_HYPOTHESIS_PLUGIN: Final = ("-p", "no:hypothesispytest")
"""Nobody reads its statistics here, and its late import may fail with "AST constructor recursion depth mismatch"."""
_FAILED: Final = 1
_TAIL_CHARACTERS: Final = 3_000
_REASON_CHARACTERS: Final = 100
_DENIED: Final = re.compile(r"(AssertionError|assert |Failed: |TimeoutError)")
"""A test that denies what it found, or waited in vain; code that merely falls over shows little."""
_BROKEN: Final = re.compile(
    r"\b(NameError|UnboundLocalError|ImportError|ModuleNotFoundError|SyntaxError|AttributeError|TypeError)\b"
)
"""A patch that makes nonsense of the code fails any test, and shows nothing."""


class Fate(StrEnum):
    """Fate of a mutant."""

    CAUGHT = "caught"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """The patch does not apply, or the test could not say anything; the reason tells."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a mutant."""

    mutant: Mutant
    fate: Fate
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run of pytest."""

    exit_code: int | None
    failures: list[str]
    errors: list[str]
    output: str


def copy_sources(folder: Path) -> None:
    for name in COPIED:
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.log"))
        else:
            shutil.copy2(source, target)


class Laboratory:
    """Copies of the sources, and the runs of pytest in them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pristine = folder / "pristine"
        self._running: set[subprocess.Popen[str]] = set()
        self._closed = False
        self._lock = threading.Lock()
        copy_sources(self._pristine)

    def unmutated(self, tests: Iterable[str], *, on_core: bool = False) -> Run:
        return self._pytest(self._pristine, sorted(set(tests)), on_core=on_core)

    def judge(self, mutant: Mutant) -> Verdict:
        began = time.monotonic()
        root = Path(tempfile.mkdtemp(prefix=f"{mutant.name}-", dir=self._folder))
        # Compiled modules come along: their sources keep size and time, and what a patch changes is compiled anew.
        shutil.copytree(self._pristine, root, dirs_exist_ok=True)
        fate, reason = Fate.BROKEN, ""
        try:
            mutant.apply(root)
            if mutant.native:
                self._build(root)
            for test in mutant.tests:
                fate, said = self.fate(self._pytest(root, [test], on_core=mutant.native))
                reason = reason or said
                if fate is not Fate.CAUGHT:
                    reason = f"{test}: {said}"
                    break
        except (PatchError, subprocess.CalledProcessError) as error:
            reason = str(error)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        return Verdict(mutant, fate, reason, time.monotonic() - began)

    @staticmethod
    def _build(root: Path) -> None:
        command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--force"]
        subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=TEST_LIMIT_S)

    @staticmethod
    def fate(run: Run) -> tuple[Fate, str]:
        if run.exit_code == 0:
            return Fate.SURVIVED, "passes with the bug in the code"
        if run.exit_code is None:
            return Fate.BROKEN, f"pytest did not end within {RUN_LIMIT_S} s"
        if run.exit_code != _FAILED or not run.failures:
            said = "\n".join(run.errors) or run.output[-_TAIL_CHARACTERS:]
            return Fate.BROKEN, f"pytest ended with {run.exit_code}, and no test failed:\n{said}"
        denials = [
            failure for failure in run.failures if _DENIED.match(failure) and not _BROKEN.search(failure)
        ]
        if not denials:
            return Fate.BROKEN, f"the code falls over, and no test denies what it does:\n{run.failures[0]}"
        return Fate.CAUGHT, denials[0].split("\n")[0][:_REASON_CHARACTERS]

    def _pytest(self, root: Path, tests: Sequence[str], *, on_core: bool = False) -> Run:
        path = "on" if on_core else "off"
        report = root / "report.xml"
        report.unlink(missing_ok=True)
        scratch = root.parent / f"{root.name}.scratch"
        command = [
            sys.executable, "-m", "pytest", "--quiet", "--tb=native", f"--timeout={TEST_LIMIT_S}",
            f"--junit-xml={report}", f"--basetemp={scratch}", *_WITHOUT_HYPOTHESIS_PLUGIN, *tests,
        ]  # fmt: skip
        with self._started(command, root, path) as process:
            try:
                output, _ = process.communicate(timeout=RUN_LIMIT_S * max(1, len(tests) // 10))
            except subprocess.TimeoutExpired:
                return Run(None, [], [], "")
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return Run(process.returncode, *_read(report), output)

    @contextlib.contextmanager
    def _started(self, command: list[str], root: Path, path: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command,
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), native.VARIABLE: path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            with self._lock:
                self._running.add(process)
                if self._closed:
                    _end(process)
            try:
                yield process
            finally:
                _end(process)
                with self._lock:
                    self._running.discard(process)

    def end_all(self) -> None:
        with self._lock:
            self._closed = True
            for popen in self._running:
                _end(popen)


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(report: Path) -> tuple[list[str], list[str]]:
    if not report.exists():
        return [], []
    document = ET.parse(report)  # noqa: S314 - pytest wrote it, a moment ago
    failures, errors = (
        [element.get("message", "") for element in document.iter(kind)] for kind in ("failure", "error")
    )
    return failures, errors
