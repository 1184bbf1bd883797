"""A status without problems, which tests change, and what the verb makes of it."""

import io
from dataclasses import replace
from typing import Any

from rich.console import Console

from app.commands.status.findings import findings
from app.commands.status.model import Address, Bridge, Consumers, Finding, Lane, Share, Status, Worker
from app.commands.status.show import document
from ringfence_kafka.page.history import Charts

LANE = Lane(
    lane="orders-0", number=0, partitions=[0], state="open", reason=None, worker="w1", lag=0, head_age_seconds=None,
    undecided_seconds=None, rate=20.0, ring_size=500, ring_capacity=2_000, seconds_covered=900.0, accepted=90,
    duplicates=10, unchecked=0, quarantined=0,
)  # fmt: skip
SHARE = Share(
    partition=0, state="held", holder="c1/ab", holder_is_member=True, waits=None, silent_seconds=0.4, lag=0, running=0,
    head_age_seconds=None, head_group=None, head_attempts=0, failing_group=None, failing_attempts=0, failing_seconds=None,
    run_group=None, run_seconds=0.0, blocked=0, blocked_group=None, hot_group=None, hot_depth=None, reason=None,
)  # fmt: skip
WORKER = Worker(name="w1", host="10.0.0.1", web="http://w1:6066", lanes=2, ready=True, broker="answers")
CONSUMERS = Consumers("billing", "orders", "STABLE", ["c1"], [SHARE])
BRIDGE = Bridge("west", "orders.accepted", "orders", "STABLE", ["b1"], 0, 7, None, [], stands=False)
STATUS = Status(
    app="shop",
    bootstrap_servers="kafka:9092",
    at="2026-01-01T00:00:00+00:00",
    workers_state="Stable",
    workers=[WORKER],
    addresses=[Address("orders", "orders", [LANE, replace(LANE, lane="orders-1", number=1, partitions=[1])])],
    consumers=[CONSUMERS],
    bridges=[BRIDGE],
)


def with_lanes(**changes: Any) -> Status:
    changes = {"waiting": changes.get("lag", 0)} | changes
    address = STATUS.addresses[0]
    return replace(
        STATUS, addresses=[replace(address, lanes=[replace(lane, **changes) for lane in address.lanes])]
    )


def with_share(group: dict[str, Any] | None = None, **changes: Any) -> Status:
    """Return the status with changes to the consumer group and its one partition; the lag is what waits."""
    changes = {"waiting": changes.get("lag", 0)} | changes
    return replace(
        STATUS, consumers=[replace(CONSUMERS, partitions=[replace(SHARE, **changes)], **(group or {}))]
    )


def only(status: Status) -> Finding:
    found = findings(status)
    assert len(found) == 1, found
    return found[0]


def printed(status: Status, width: int = 100, past: Charts | None = None) -> str:
    output = io.StringIO()
    Console(file=output, width=width).print(document(status, findings(status), past), crop=False)
    return output.getvalue()
