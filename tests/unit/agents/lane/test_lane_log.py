"""Log lines of a lane: errors are warnings, and good news is not."""

import logging
from pathlib import Path
from typing import Any, cast

import pytest

from agents.lane.errors import LimitsAgreedError, TopicChangedError
from agents.lane.lane import Lane, LaneState
from agents.lane.opening.table_opening import describe_store
from agents.lane.state_folder import FolderUsableError
from agents.worker.lanes import Lanes
from bench.worker_log import events, opened
from ringfence_kafka.config.load import validate
from tables.change import Restored, TableOptions
from tables.table import LaneTable


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    app = {"id": "rf", "data_dir": str(tmp_path)}
    settings = validate({"app": app, "addresses": [{"name": "orders"}]})
    return Lane(Lanes(settings, cast("Any", None))._factory.opening(("orders", 0)))


@pytest.mark.parametrize("kind", [FolderUsableError, LimitsAgreedError, TopicChangedError])
async def test_good_news_is_no_warning(lane: Lane, caplog: pytest.LogCaptureFixture, kind: Any) -> None:
    """A lane that reopens because a resource is usable again has not failed: the line has no error class and is not a warning."""
    caplog.set_level(logging.INFO)
    lane._failed(kind("its folder is writable again"))
    assert (lane.state, lane.reason) == (LaneState.OPENING, "its folder is writable again")
    lane._failed(TimeoutError())
    good, bad = caplog.records

    assert (good.levelno, bad.levelno) == (logging.INFO, logging.WARNING)
    assert good.getMessage().startswith("lane orders-0 reopens in ")
    assert good.getMessage().endswith(" s: its folder is writable again")
    assert bad.getMessage().startswith("lane orders-0 retrying in ")
    assert lane.state is LaneState.RETRYING


@pytest.mark.parametrize(
    ("in_memory", "restored", "said"),
    [
        (True, Restored(5, 0.1, reused=False), "in memory, not on disk"),
        (False, Restored(5, 0.1, reused=False), "RocksDB new"),
        (False, Restored(0, 0.1, reused=True), "RocksDB reused"),
    ],
)
def test_where_a_lane_is_restored(tmp_path: Path, *, in_memory: bool, restored: Restored, said: str) -> None:
    """The line about a restore describes the disk, even if the lane's files are in memory. The bench reads it in either case."""
    table = LaneTable(tmp_path / "orders-0", TableOptions(5, 5))
    table.store.keep_in_memory(in_memory)
    assert describe_store(restored, table) == said
    line = f"2026-01-01 00:00:00,000 INFO ringfence.lane: lane orders-0 open: 5 changelog records restored in 0.10 s ({said}), ring"
    (event,) = found = events(line)

    assert opened(found, 0.0) == {"orders-0": (event.moment, 5, 0.1, restored.reused)}
