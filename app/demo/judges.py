"""The judges of a run when it is over: the check, and the reconciliation run with its page. Programs of their own."""

import datetime as dt
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.demo.stage import CHECK_LIMIT_S, Stage
from app.demo.traffic import ADDRESSES
from app.demo.watch import Positions
from ringfence_kafka.protocol import wire_names

RECONCILE_LIMIT_S: Final = 600.0
"""The first time it fetches Spark's Kafka connector."""
REPORTS: Final = Path("data/demo")
"""Below the folder in which the demo was called; what is there stays."""


@dataclass(frozen=True)
class Judges:
    """They read Kafka, and know nothing from the demo but where it is."""

    stage: Stage
    bootstrap: str
    config: Path

    def check(self, seconds: float, killed: Positions | None) -> int:
        """The exit code of the check, which prints its table.

        Args:
            seconds: How long the run took.
            killed: Where the worker was when it died.
        """
        arguments = ["app.check", "--bootstrap", self.bootstrap, "--seconds", f"{seconds:.1f}"]
        for address in ADDRESSES:
            arguments += ["--topics", f"{address}={wire_names.accepted_topic(address)}"]
        if killed is not None:
            kept = self.stage.directory / "killed.json"
            kept.write_text(json.dumps(killed), "utf-8")
            arguments += ["--killed", str(kept)]
        return self.stage.run(arguments, "check", CHECK_LIMIT_S)

    def reconcile(self, reports: Path) -> int:
        """The nightly job, on this traffic; 1 unless it calls it clean."""
        arguments = ["app", "reconcile", "--config", str(self.config), "--out", str(reports)]
        code = self.stage.run(arguments, "nightly job", RECONCILE_LIMIT_S)
        return 2 if code == 2 else int(code != 0)


def reports_folder() -> Path:
    """A new one, for what the nightly job writes: it is there when the demo's own folder is not any more."""
    name = f"report-{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}"
    folder = Path.cwd() / REPORTS / name
    try:
        folder.mkdir(parents=True)
    except OSError:  # nothing can be written here
        folder = Path(tempfile.mkdtemp(prefix=f"ringfence-{name}-"))
    return folder
