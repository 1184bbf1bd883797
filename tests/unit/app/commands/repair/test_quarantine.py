import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest

from app.commands.repair.quarantine import Quarantine, QuarantineRedrive, find
from app.commands.repair.records import Place, RedriveOptions, Refused
from app.commands.repair.republish import Publisher
from app.commands.repair.verbs import RateLimit
from ringfence_kafka.config.load import validate
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer.transactional import empty_batch
from ringfence_kafka.protocol import wire_names
from tests.support.records.refused import publisher_of, refused_record


def _redrive(
    publisher: Publisher, renewed: Callable[[], Awaitable[Publisher]] | None = None, *, bridged: bool = False
) -> QuarantineRedrive:
    quarantine = Quarantine("orders", None, "q", "orders", None, bridged)  # type: ignore[arg-type]
    again = renewed or AsyncMock(return_value=publisher)
    return QuarantineRedrive(None, RedriveOptions(), quarantine, publisher, again)  # type: ignore[arg-type]


async def test_a_dry_run_says_what_would_be_left(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run leaves records too large for the input too, and keeps no values of those that it leaves."""
    run = _redrive(publisher_of())
    fits, large = (refused_record(value=b"v" * size) for size in (500, 1_000))
    await run.try_out(None, [fits, large, refused_record(redriven=3)])  # type: ignore[arg-type]

    assert (run.result.done, len(capsys.readouterr().out.splitlines())) == (1, 1)
    assert ["raise it there" in why for _, why in run.result.left] == [True, False]
    assert all(refused.value is None for refused, _ in run.result.left)


class _Settled:
    """A quarantine partition that records the settled offsets and the number of published records."""

    builder = staticmethod(empty_batch)

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.published = 0

    async def settle(self, offsets: list[int], batches: list[Any]) -> None:
        self.offsets += offsets
        self.published += sum(batch.builder.record_count() for batch in batches)


def _with_hops(*hops: bytes | None) -> list[Refused]:
    return [
        refused_record(
            place=Place("q", 0, number), headers=() if hop is None else ((wire_names.HEADER_HOP, hop),)
        )
        for number, hop in enumerate(hops)
    ]


@pytest.mark.parametrize(
    ("bridged", "topic", "expected"), [(True, b"T", 4), (False, b"T", 6), (False, b"T" * 22, 4)]
)
async def test_what_came_twice(bridged: bool, topic: bytes, expected: int) -> None:
    """A record that a bridge wrote twice is published once and settled at each place.

    This also holds for one with a hop that a lane refused again before it could note the hop.
    """
    publisher = publisher_of(bridged=bridged, force=True)
    first, second = (b"b/%b/0/%d" % (topic, hop) for hop in (1, 2))
    found = _with_hops(first, second, first, None, None, first)
    run = _redrive(publisher, bridged=bridged)
    settled = _Settled()
    await run.redrive(settled, found[:3])  # type: ignore[arg-type]
    await run.redrive(settled, found[3:])  # type: ignore[arg-type]
    tried = _redrive(publisher, bridged=bridged)
    await tried.try_out(settled, found)  # type: ignore[arg-type]

    assert (settled.offsets, settled.published) == (list(range(6)), expected)
    assert (run.result.done, tried.result.done) == (expected, expected)


async def test_a_size_that_was_raised_during_the_run() -> None:
    """A record too large for the known limits is compared with the current ones, which are asked for only then."""
    renewed = AsyncMock(return_value=publisher_of(bytes_max=10_000))
    small, larger, too_large = (
        refused_record(place=Place("q", 0, number), value=b"x" * size)
        for number, size in enumerate((1, 5_000, 20_000))
    )
    run = _redrive(publisher_of(), renewed)
    settled = _Settled()
    for chunk, offsets, count in (([small], [0], 0), ([larger], [0, 1], 1), ([too_large] * 2, [0, 1], 2)):
        await run.redrive(settled, chunk)  # type: ignore[arg-type]
        assert (settled.offsets, renewed.call_count) == (offsets, count), "a chunk asks once"
    run = _redrive(publisher_of(), renewed)
    await run.try_out(_Settled(), [small, larger, too_large])  # type: ignore[arg-type]

    assert (run.result.done, len(run.result.left), renewed.call_count) == (2, 1, 3)


def test_names() -> None:
    """An address takes precedence over a bridge of its name; an unknown name is an error that lists the known ones."""
    bridge = {"name": "over", "source_topic": "s", "target_address": "orders"}
    settings = validate({"app": {"id": "a"}, "addresses": [{"name": "orders"}], "bridges": [bridge]})
    over = find(settings, "over")

    assert find(settings, "orders").topic == "orders.quarantine"
    assert (over.topic, over.target_topic) == ("over.quarantine", "orders")
    known = "unknown address or bridge 'none': the configuration has orders, over"
    with pytest.raises(ConfigurationError, match=known):
        find(settings, "none")
    with pytest.raises(ConfigurationError, match="unknown bridge 'orders'"):
        find(settings, "orders", bridge=True)


async def test_pace() -> None:
    """A rate limit bounds the records a second, in chunks of any size; without a rate nothing waits."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    pace = RateLimit(100)
    for _ in range(3):
        await pace.wait(10)

    assert loop.time() - begun >= 0.19  # the last ten need not be waited for
    assert pace.chunk == 20
    assert (RateLimit(None).chunk, RateLimit(1).chunk) == (500, 1)
