"""Instances of a bridge and their translation of records, judged by the target's real hop memory."""

import asyncio
import itertools
import random
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import pytest

from agents.bridge.translation import Header, Passing, Traced, Translator
from agents.decision.partitioner import Partitioner
from ringfence_kafka.protocol import hop, wire_names
from tables.codec import Route
from tables.hops import Arrival, HopMemory
from tests.property import examples
from tests.support.bridges.simulated import TOPIC_ID, Instance, Message, System, finish, run, serve

RUNS: Final = examples(400)
CAPACITY: Final = 1_000


def _headers(record: dict[str, Any]) -> dict[str, bytes]:
    return dict(record["headers"])


def _step_of(record: dict[str, Any]) -> hop.Hop:
    found = hop.decode(_headers(record)["_RF_BRIDGE_DUPL_ID"])
    assert found is not None
    return found


def _crossed(record: dict[str, Any], partition: int) -> Arrival:
    step = _step_of(record)
    confirmed = hop.decode_offset(_headers(record)["_RF_BRIDGE_CONFIRMED"])
    assert confirmed is not None
    assert confirmed <= step.offset
    return Arrival(Route(step.source, partition), step.offset, confirmed)


def _passed(system: System, partition: int) -> list[hop.Hop]:
    log = system.logs[system.plan.target_topic, partition]
    known = HopMemory(CAPACITY).check([_crossed(item, partition) for item in log]).known
    return [_step_of(item) for item, again in zip(log, known, strict=True) if not again]


def _expected(system: System, number: int, partition: int) -> list[int]:
    home = Partitioner(system.partitions)
    source = hop.Source("b", TOPIC_ID, number)

    def goes(each: Message) -> bool:
        place = each.key or hop.encode(hop.Hop(source, each.offset))
        return each.headers[0][1] == b"y" and each.value != b"poison" and home[place] == partition

    return [item.offset for item in system.source[number] if goes(item)]


def _places(steps: Iterable[hop.Hop]) -> list[tuple[int, int]]:
    return [(source.partition, offset) for source, offset in steps]


def _poison(system: System) -> set[tuple[int, int]]:
    return {
        (number, message.offset)
        for number, messages in enumerate(system.source)
        for message in messages
        if message.value == b"poison" and message.headers[0][1] == b"y"
    }


def _require_exact(system: System) -> None:
    poison, taken = _poison(system), []
    for partition in range(system.partitions):
        passed = _passed(system, partition)
        taken += [place for place in _places(passed) if place in poison]
        for number in range(len(system.source)):
            offsets = [
                offset
                for source, offset in _places(passed)
                if source == number and (source, offset) not in poison
            ]
            assert offsets == _expected(system, number, partition), (number, partition)
    assert len(taken) == len(set(taken)), "passed twice"
    assert not (taken and system.refuses)
    assert set(taken) | _quarantined(system) == poison


def _quarantined(system: System) -> set[tuple[int, int]]:
    logs = [log for (topic, _), log in system.logs.items() if topic == system.plan.quarantine_topic]
    return set(_places(_step_of(log) for log in itertools.chain(*logs)))


@pytest.mark.parametrize("tenth", range(10))
def test_once_and_in_order(tenth: int) -> None:
    """Each record passes once, in order, whichever instances die; a refused one is in quarantine, or passes once it fits."""
    for seed in range(tenth * RUNS // 10, (tenth + 1) * RUNS // 10):
        print("seed", seed)
        _require_exact(asyncio.run(run(System(random.Random(seed)))))


async def _taken_after_all(system: System) -> None:
    """Run an instance that dies with poison on its way to quarantine and later records at the target; then raise the limit."""
    first = Instance(system)
    for _ in range(20):
        await serve(first, [system.plan.target_topic])
    waiting = [
        outstanding.topic for outstanding in first.producer.outstanding if not outstanding.answer.done()
    ]
    assert waiting == [system.plan.quarantine_topic]
    await first.life.discard()
    system.refuses = False
    await finish(system)


def test_taken_after_all() -> None:
    """A refused record passes late, because no later record has confirmed it."""
    system = System(random.Random(1))
    values = [b"0", b"poison", b"2", b"3"]
    system.source = [
        [Message(number, b"g1", value, (("pass", b"y"),)) for number, value in enumerate(values)]
    ]
    system.committed = {0: 0}
    asyncio.run(_taken_after_all(system))
    home = Partitioner(system.partitions)[b"g1"]

    assert [step.offset for step in _passed(system, home)] == [0, 2, 3, 1]
    assert _quarantined(system) == set()


NAMES: Final = (
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART, wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED,
    wire_names.HEADER_USER_IDS, wire_names.HEADER_HOPS, wire_names.HEADER_REASON, "_RF_", "_rf_", "_AMQ_DUPL_ID", "a", "b", "",
)  # fmt: skip
MARK: Final = ("mark", b"1")
"""A bridge that adds a header takes no record as it is."""


class Record(NamedTuple):
    """A record as a consumer reads it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    offset: int
    timestamp: int


def _record(rng: random.Random) -> Record:
    few = rng.sample(NAMES, rng.randint(1, len(NAMES)))
    headers = tuple(
        (rng.choice(few), rng.choice([None, b"", b"x", b"berlin"])) for _ in range(rng.randint(0, 4))
    )
    return Record(rng.choice([None, b"k"]), rng.choice([None, b"v"]), headers, rng.randint(0, 9), 5)


@pytest.mark.parametrize("seed", range(20))
def test_quick_is_as_careful(seed: int) -> None:
    rng = random.Random(seed)
    quick, careful = Translator(), Translator(add_headers={MARK[0]: MARK[1].decode()})
    same = accepted = 0
    records = [_record(rng) for _ in range(2_000)]
    carefully = [careful.translate(record) for record in records]
    at_once = quick.translate_all(records)
    assert careful.translate_all(records) == carefully
    _require_traced_alike(quick, careful, records)
    for record, together, two in zip(records, at_once, carefully, strict=True):
        alone = quick.translate(record)

        assert two is not None
        wanted = (*_all(two)[:4], [header for header in two.headers if header != MARK])
        assert [_all(item) for item in (together, alone)] == [wanted, wanted], record
        same += together is record
        accepted += [name for name, _ in record.headers if name[:4] == "_RF_"] == [wire_names.HEADER_SOURCE]
    assert same > 0
    assert accepted > 0


def _require_traced_alike(quick: Translator, careful: Translator, records: list[Record]) -> None:
    """Require the same returned records, and the same traced records, from both translators."""
    found = []
    for translator in (quick, careful):
        passing = Passing("x" * 22, {b"berlin"}, forwards=False)
        made = translator.translate_all(records, passing)
        plain = [
            (type(record) is Traced, *_all(record)[:4], [it for it in record.headers if it != MARK])
            for record in made
        ]
        found.append((plain, passing.returned))

    assert found[0] == found[1]
    assert found[0][1]
    assert any(item[0] for item in found[0][0])


def _all(record: Any) -> tuple[object, ...]:
    return record.offset, record.key, record.value, record.timestamp, list(record.headers)
