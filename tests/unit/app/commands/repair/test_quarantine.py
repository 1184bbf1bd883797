"""Redrives of quarantined records, chunk by chunk."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.commands.repair.quarantine import Quarantine, QuarantineRedrive, find
from app.commands.repair.records import Place, RedriveOptions
from app.commands.repair.republish import InputTopic, Publisher
from app.commands.repair.verbs import RateLimit
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer.transactional import empty_batch
from ringfence_kafka.protocol import wire_names
from tests.support.refused import refused_record


def _publisher(
    *, bytes_max: int = 1_000, bridged: bool = False, force: bool = False, **address: Any
) -> Publisher:
    target = InputTopic("orders", 4, bytes_max)
    return Publisher(
        target, AddressSettings(name="orders", **address), RedriveOptions(force=force), bridged=bridged
    )


def _redrive(
    publisher: Publisher, renewed: Callable[[], Awaitable[Publisher]] | None = None, *, bridged: bool = False
) -> QuarantineRedrive:
    quarantine = Quarantine("orders", None, "q", "orders", None, bridged)  # type: ignore[arg-type]
    return QuarantineRedrive(publisher, quarantine, None, RedriveOptions(), renewed)  # type: ignore[arg-type]


async def test_a_dry_run_says_what_would_be_left(capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run leaves records too large for the input too, and keeps no values of those that it leaves."""
    run = _redrive(_publisher())
    fits, large, again = (
        refused_record(value=b"v" * 500),
        refused_record(value=b"v" * 1_000),
        refused_record(redriven=3),
    )
    await run.try_out(None, [fits, large, again])  # type: ignore[arg-type]

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


@pytest.mark.parametrize("bridged", [True, False])
async def test_what_a_bridge_wrote_twice(bridged: bool) -> None:
    """A record that a bridge wrote twice is published once and settled at each place.

    In a lane, equal hops count as one record only if a bridge wrote them; a producer's own headers do not.
    """
    publisher = _publisher(bridged=bridged, force=True)
    hops = [b"b/T/0/1", b"b/T/0/2", b"b/T/0/1", None, None, b"b/T/0/1"]
    found = [
        refused_record(
            place=Place("q", 0, number), headers=() if hop is None else ((wire_names.HEADER_HOP, hop),)
        )
        for number, hop in enumerate(hops)
    ]
    run = _redrive(publisher, bridged=bridged)
    settled = _Settled()
    await run.redrive(settled, found[:3])  # type: ignore[arg-type]
    await run.redrive(settled, found[3:])  # type: ignore[arg-type]
    tried = _redrive(publisher, bridged=bridged)
    await tried.try_out(settled, found)  # type: ignore[arg-type]

    expected = 4 if bridged else 6
    assert (settled.offsets, settled.published) == (list(range(6)), expected)
    assert (run.result.done, tried.result.done) == (expected, expected)


async def test_what_a_lane_refused_twice() -> None:
    """Records with the same hop, refused again before the hop could be noted, are published once."""
    found = [
        refused_record(
            place=Place("q", 0, number), headers=((wire_names.HEADER_HOP, b"b/%b/0/%d" % (b"T" * 22, hop)),)
        )
        for number, hop in enumerate((1, 2, 1))
    ]
    run = _redrive(_publisher(force=True))
    settled = _Settled()
    await run.redrive(settled, found)  # type: ignore[arg-type]

    assert (settled.offsets, settled.published, run.result.done) == ([0, 1, 2], 2, 2)


async def test_a_size_that_was_raised_during_the_run() -> None:
    """A record too large for the known limits is compared with the current ones, which are asked for only then."""
    asked: list[int] = []
    larger = _publisher(bytes_max=10_000)

    async def renewed() -> Publisher:
        asked.append(1)
        return larger

    found = [
        refused_record(place=Place("q", 0, number), value=b"x" * size)
        for number, size in enumerate((1, 5_000, 20_000))
    ]
    run = _redrive(_publisher(), renewed)
    settled = _Settled()
    await run.redrive(settled, found[:1])  # type: ignore[arg-type]
    assert asked == []
    await run.redrive(settled, found[1:2])  # type: ignore[arg-type]
    assert (settled.offsets, asked) == ([0, 1], [1])
    await run.redrive(settled, [found[2], found[2]])  # type: ignore[arg-type]
    assert asked == [1, 1], "a chunk asks once"
    run = _redrive(_publisher(), renewed)
    await run.try_out(_Settled(), found)  # type: ignore[arg-type]

    assert (run.result.done, len(run.result.left)) == (2, 1)
    assert asked == [1, 1, 1]


def test_names() -> None:
    """An address takes precedence over a bridge of its name; an unknown name is an error that lists the known ones."""
    bridges = [{"name": name, "source_topic": "s", "target_address": "orders"} for name in ("orders", "over")]
    settings = validate({"app": {"id": "a"}, "addresses": [{"name": "orders"}], "bridges": bridges[1:]})

    assert find(settings, "orders").topic == "orders.quarantine"
    assert (find(settings, "over").topic, find(settings, "over").target_topic) == (
        "over.quarantine",
        "orders",
    )
    with pytest.raises(
        ConfigurationError, match="unknown address or bridge 'none': the configuration has orders, over"
    ):
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
