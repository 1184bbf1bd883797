"""A lane whose batch has too many parts for one Kafka transaction: cut, failing between the cuts, and taken over there."""

from pathlib import Path

import pytest

from ringfence_kafka.process import failpoints
from tests.support import kafka
from tests.support.lanes import Bench, bench, until
from tests.support.records.envelopes import envelope, part

PARTS_MAX = 12
ENVELOPES, PARTS = 10, 5
"""Five Kafka transactions of two envelopes each."""


@pytest.fixture(autouse=True)
def _few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.decision.decide.PARTS_MAX", PARTS_MAX)


def _send(lanes: Bench) -> list[bytes]:
    """Envelopes, and a plain message behind them; returns what is due."""
    lanes.send(
        *(
            envelope(
                *(part(None, "group", f"{number}.{index}") for index in range(PARTS)),
                key=b"group",
                known=b"%d" % number,
            )
            for number in range(ENVELOPES)
        ),
        *(
            envelope(part(None, "group", "again"), key=b"group", known=b"%d" % number)
            for number in range(ENVELOPES)
        ),
        kafka.Sent(None, b"group", b"behind"),
    )
    return [b"%d.%d" % (number, index) for number in range(ENVELOPES) for index in range(PARTS)] + [b"behind"]


class FailAt:
    """Raises when it is reached for these times."""

    def __init__(self, *times: int) -> None:
        self.reached = 0
        self._times = times

    async def __call__(self, point: str, lane: str) -> None:
        self.reached += 1
        if self.reached in self._times:
            raise OSError(f"planted at {point}")


@pytest.mark.parametrize(
    "point", ["after-fetch", "mid-send", "before-commit", "after-commit", "before-store", "after-store"]
)
async def test_failed_between_the_cuts(bootstrap: str, tmp_path: Path, point: str) -> None:
    """What is left of the batch is kept, and runs before what was queued behind it: exact, wherever it failed, twice."""
    async with bench(bootstrap, tmp_path) as lanes:
        due = _send(lanes)
        end = 2 * ENVELOPES + 1
        lane = await lanes.opened()
        fail = FailAt(2, 5)
        remove = failpoints.install(point, f"{lanes.name}-0", fail)
        try:
            await lane.offer(await lanes.fetch(0, ENVELOPES))
            await lane.offer(await lanes.fetch(ENVELOPES, end))
            await until(lambda: lane.next == end, lambda: f"next {lane.next}, {lane.state}: {lane.reason}")
        finally:
            remove()

        assert fail.reached > ENVELOPES // 2  # as many Kafka transactions at the least
        assert lane.counts["retries"] == 2
        assert [item.value for item in lanes.output()] == due
        assert lanes.committed() == end
