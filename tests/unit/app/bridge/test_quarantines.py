import math
import socket
from types import SimpleNamespace
from typing import Any

from agents.bridge.plan import plans
from app.bridge.quarantines import BridgeQuarantines, QuarantineMetrics
from ringfence_kafka.config.load import validate


def _metrics(assigned: set[int] | None) -> list[tuple[str, float]]:
    plan: Any = SimpleNamespace(name="west")
    bridge: Any = SimpleNamespace(plan=plan, state=SimpleNamespace(assigned=assigned))
    return [
        (family.name, sample.value)
        for family in QuarantineMetrics([bridge]).collect()
        for sample in family.samples
    ]


async def test_a_target_that_does_not_answer() -> None:
    """Nothing is known of the quarantine, which is not the same as an empty one."""
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        target = {"bootstrap_servers": f"127.0.0.1:{taken.getsockname()[1]}"}
        bridge = {"name": "west", "source_topic": "s", "target_address": "orders", "target": target}
        settings = validate({"addresses": [{"name": "orders"}], "bridges": [bridge]})

        assert await BridgeQuarantines().read(plans(settings)) == {}


def test_one_process_counts() -> None:
    """The process with the first source partition has the gauges; NaN before it knows."""
    (count, open_records), (age, oldest) = _metrics({0, 3})

    assert (count, age, oldest) == ("ringfence_bridge_quarantine_open_records", "ringfence_bridge_quarantine_oldest_seconds", 0)  # fmt: skip
    assert math.isnan(open_records)
    assert _metrics({1}) == _metrics(None) == []
