"""Everything that a handler may do, at random, and an operator who cuts through: each message has one end, each group its order."""

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from ringfence_client import Message, Reject, Release, Retry
from tests.support.consumers.in_process import Recorder, consuming
from tests.support.kafka import Sent
from tests.support.lanes import until

GROUPS = 12
EACH = 12


class Whims:
    """Decides by seed and message what its handler does; at most two misfortunes a message, then it is done."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._met: Counter[tuple[int, int]] = Counter()
        self.ended: list[tuple[int, int, str]] = []
        """Partition, offset, how: what the handler itself decided for good."""

    async def __call__(self, message: Message) -> None:
        place = (message.partition, message.offset)
        chance = random.Random(f"{self._seed} {place} {self._met[place]}")
        kind = chance.choice(
            ["return"] * 5 + ["raise", "retry", "release", "hang", "swallow", "reject", "slow"]
        )
        if self._met[place] >= 2:
            kind = "return"
        self._met[place] += 1
        await asyncio.sleep(chance.random() * 0.01)
        if kind == "raise":
            raise ValueError("planted")
        if kind == "retry":
            raise Retry("planted", 0.01)
        if kind == "release":
            raise Release
        if kind == "hang":
            await asyncio.Event().wait()
        if kind == "swallow":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return
        if kind == "slow":
            await asyncio.sleep(0.2)
        self.ended.append((*place, kind))
        if kind == "reject":
            raise Reject("planted")


@pytest.mark.parametrize(("seed", "prefetch"), [(1, 1), (2, 4)])
async def test_misfortunes(bootstrap: str, monkeypatch: pytest.MonkeyPatch, seed: int, prefetch: int) -> None:
    """Returned, rejected or skipped: one of these, once, whatever came before; nothing of a group overtakes another of it."""
    monkeypatch.setattr("ringfence_client.dispatch.attempt.CUT_SHORT_REST_S", 0.05)
    whims, chance = Whims(seed), random.Random(seed)
    handler = Recorder(whims)
    skipped = withdrawn = 0
    async with consuming(bootstrap, 2) as bench:
        for partition in range(2):
            sent = [Sent(None, b"%d" % group, b"") for _ in range(EACH) for group in range(GROUPS)]
            bench.send(*sent, partition=partition)
        running = await bench.start(
            handler, concurrency=5, prefetch=prefetch, handler_timeout=0.5, max_attempts=20, breaker=False
        )
        dispatcher = running.consumer.dispatcher
        while any(
            partition.window.next < GROUPS * EACH for partition in running.consumer.partitions.values()
        ):
            running.check()
            held = running.consumer.partitions[chance.randrange(2)]
            group = b"%d" % chance.randrange(GROUPS)
            if chance.random() < 0.2:
                dispatcher.release(held, group)
            elif chance.random() < 0.05:
                first = (held.partition, min(held.window.of(group), default=-1))
                rejected = any(first == (partition, offset) for partition, offset, _ in whims.ended)
                went = dispatcher.skip(held, group)
                # Its dead letter was not on its way yet.
                withdrawn += went if rejected else 0
                skipped += 0 if rejected else went
            await asyncio.sleep(0.01)
        await until(lambda: not dispatcher.running, lambda: "something still runs")
        await running.stop()
        letters = await bench.letters()

    ended = [(partition, offset) for partition, offset, _ in whims.ended]

    assert handler.wrong == []
    assert len(ended) == len(set(ended))
    assert len(letters) + withdrawn == sum(how == "reject" for *_, how in whims.ended)
    assert len(ended) + skipped == 2 * GROUPS * EACH
    assert skipped > 0
