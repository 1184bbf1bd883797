"""Who judges a run when it is over: the check, and the nightly job with its page. Programs of their own."""

import contextlib
import datetime as dt
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.demo.processes import Child, Interruption
from app.demo.traffic import ADDRESSES
from app.demo.watch import Positions
from ringfence_kafka import wire
from ringfence_kafka.errors import RingfenceError

CHECK_LIMIT_S: Final = 300.0
RECONCILE_LIMIT_S: Final = 600.0
"""The first time it fetches Spark's Kafka connector."""
REPORTS: Final = Path("data/demo")
"""Below the folder in which the demo was called; what is there stays."""


class DemoError(RingfenceError):
    """The demo came to no result."""


@dataclass(frozen=True)
class Judges:
    """They read Kafka, and know nothing from the demo but where it is."""

    directory: Path
    bootstrap: str
    config: Path
    interruption: Interruption
    stack: contextlib.ExitStack

    def check(self, seconds: float, killed: Positions | None) -> int:
        """The exit code of the check, which prints its table.

        Args:
            seconds: How long the run took.
            killed: Where the worker was when it died.
        """
        arguments = ["-m", "app.check", "--bootstrap", self.bootstrap, "--seconds", f"{seconds:.1f}"]
        for each in ADDRESSES:
            arguments += ["--topics", f"{each}={wire.accepted_topic(each)}"]
        if killed is not None:
            kept = self.directory / "killed.json"
            kept.write_text(json.dumps(killed), "utf-8")
            arguments += ["--killed", str(kept)]
        return self._ended(arguments, "check", CHECK_LIMIT_S)

    def reconcile(self, reports: Path) -> int:
        """The nightly job, on this traffic; 1 unless it calls it clean."""
        arguments = ["-m", "app", "reconcile", "--config", str(self.config), "--out", str(reports)]
        code = self._ended(arguments, "nightly job", RECONCILE_LIMIT_S)
        return 2 if code == 2 else int(code != 0)  # noqa: PLR2004 - the verb could not run

    def _ended(self, arguments: list[str], name: str, limit_s: float) -> int:
        child = Child(arguments, None)
        self.stack.callback(child.kill)
        return ended(child, name, limit_s, self.interruption.check)


def ended(child: Child, name: str, limit_s: float, look: Callable[[], None]) -> int:
    """Wait for what judges or prepares; its exit code, 0 or more.

    Args:
        child: The process.
        name: What it is, for errors.
        limit_s: How long it may take.
        look: Called meanwhile.

    Raises:
        DemoError: it did not end, or a signal ended it: what it would have said nobody knows.
    """
    code = child.wait(limit_s, look)
    if code is None:
        raise DemoError(f"the {name} did not end within {limit_s:g} s: run it on a machine that is less busy")
    if code < 0:
        tail = child.log_tail()
        raise DemoError(
            f"signal {-code} ended the {name}: look whether memory ran out, and run it again"
            + (f"\n{tail}" if tail else "")
        )
    return code


def reports_folder() -> Path:
    """A new one, for what the nightly job writes: it is there when the demo's own folder is not any more."""
    name = f"report-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"
    folder = Path.cwd() / REPORTS / name
    try:
        folder.mkdir(parents=True)
    except OSError:  # nothing can be written here
        folder = Path(tempfile.mkdtemp(prefix=f"ringfence-{name}-"))
    return folder
