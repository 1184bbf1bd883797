import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from app.worker.run_report import SKEW_MS, link
from ringfence_kafka.config.load import validate
from ringfence_kafka.protocol.run_result import RunResult

RUN: Final = RunResult(verdict="clean", number=3, began_ms=1_000_000, ended_ms=2_000_000)


def test_only_the_page_of_that_run(tmp_path: Path) -> None:
    """A page that is elsewhere, of another time or of a failed run is not linked."""
    settings = validate({"app": {"data_dir": str(tmp_path)}})
    page = tmp_path / "reconcile" / "results" / "000003" / "report.html"
    page.parent.mkdir(parents=True)
    missing = link(settings, RUN)
    page.write_text("<html>")
    os.utime(page, (1_900, 1_900))

    assert (missing, link(settings, RUN), link(settings, None)) == ("", "/report/3", "")
    assert link(settings, replace(RUN, began_ms=1_900_000 + SKEW_MS + 1, ended_ms=2_000_000)) == ""
    assert link(settings, replace(RUN, ended_ms=1_900_000 - SKEW_MS - 1)) == ""
    assert link(settings, replace(RUN, number=0, verdict="failed")) == ""
    assert link(validate({"reconcile": {"state_dir": "s3a://b/runs"}}), RUN) == ""
