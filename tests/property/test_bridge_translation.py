"""Records that a bridge passes on quickly are the same as those that it takes header by header."""

import random
from typing import Any, Final, NamedTuple

import pytest

from agents.bridge.translation import Header, Passing, Traced, Translator
from ringfence_kafka.protocol import wire_names

NAMES: Final = (
    wire_names.HEADER_SOURCE, wire_names.HEADER_KEY, wire_names.HEADER_TRANSACTION, wire_names.HEADER_PART, wire_names.HEADER_HOP, wire_names.HEADER_CONFIRMED,
    wire_names.HEADER_USER_IDS, wire_names.HEADER_HOPS, wire_names.HEADER_REASON, "_RF_", "_rf_", "_AMQ_DUPL_ID", "a", "b", "",
)  # fmt: skip
MARK: Final = ("mark", b"1")
"""A bridge that adds a header takes no record as it is."""


class Record(NamedTuple):
    """As a consumer reads it."""

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
    """But for the header that makes it careful."""
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
        wanted = (
            two.offset,
            two.key,
            two.value,
            two.timestamp,
            [header for header in two.headers if header != MARK],
        )
        assert [_all(item) for item in (together, alone)] == [wanted, wanted], record
        same += together is record
        accepted += [name for name, _ in record.headers if name[:4] == "_RF_"] == [wire_names.HEADER_SOURCE]
    assert same > 0
    assert accepted > 0


def _require_traced_alike(quick: Translator, careful: Translator, records: list[Record]) -> None:
    """What comes back is the same, and who says where a message has been."""
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
