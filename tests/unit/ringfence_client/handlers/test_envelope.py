"""The functions by which producers make transactions."""

import subprocess
import sys
from typing import Any

import pytest

import ringfence_client
from agents.decision import envelope as worker
from ringfence_client import Part, envelope
from ringfence_kafka.protocol import wire_names


def test_ids() -> None:
    """An ID may be any bytes, under the address's header. An empty ID means none. Others are refused."""
    assert envelope([Part("")], b"\xff", id_header="X-ID").headers[1:] == [("X-ID", b"\xff")]
    for none in (None, "", b""):
        assert envelope([Part("")], none).headers == [("_RF_TX", b"json/1")]
    given: Any
    for *given, complaint in (
        (7, "ID", "duplicate_id is of type int: give bytes"),
        ("7", "_RF_SOURCE", "'_RF_SOURCE' begins with _RF_"),
        ("7", b"ID", "id_header is of type bytes: give a string"),
    ):
        with pytest.raises((TypeError, ValueError), match=complaint):
            envelope([Part("")], given[0], id_header=given[1])


def test_most() -> None:
    """An envelope takes as many parts as a worker, from any iterable, and no more."""
    most = wire_names.TRANSACTION_PARTS_MAX

    assert len(worker.decode(b"json/1", envelope(Part("") for _ in range(most)).value)) == most
    with pytest.raises(ValueError, match="10,001 parts: at most 10,000; make several"):
        envelope([Part("")] * (most + 1))


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([], "no parts: a transaction has at least one"),
        ([Part(""), {"value": ""}], r"part 2/2: it is of type dict, not a Part: write Part\(value"),
        ([Part(""), Part({"amount": 10})], "part 2/2: value is of type dict: give bytes, or a string"),  # type: ignore[arg-type]
        ([Part("\ud800")], "part 1/1: value holds half of a surrogate pair"),
        ([Part("", address="")], "part 1/1: address is empty: give the name of one"),
        ([Part("", address=b"a")], "part 1/1: address is of type bytes"),  # type: ignore[arg-type]
        ([Part("", headers={"a": "b"})], r"part 1/1: headers is of type dict: give a list of \(name, value\) pairs"),  # type: ignore[arg-type]
        ([Part("", headers=["ab"])], "part 1/1: the header 'ab' is not a pair"),  # type: ignore[list-item]
        ([Part("", headers=[(b"a", "b")])], "part 1/1: the name of a header is of type bytes: give a string"),  # type: ignore[list-item]
        ([Part("", headers=[("a", 1)])], "part 1/1: the header 'a' is of type int: give bytes"),  # type: ignore[list-item]
        ([Part(""), Part("", headers=[("_RF_TX", "")])], "part 2/2: the header '_RF_TX' begins with _RF_, .* rename it"),
    ],
)  # fmt: skip
def test_refused(parts: list[Any], complaint: str) -> None:
    """A malformed part is refused where the transaction is made, and named, instead of going to quarantine."""
    with pytest.raises((TypeError, ValueError), match=complaint):
        envelope(parts)


def test_producers_load_no_consumer() -> None:
    """A producer's import loads only the standard library and the names on the wire."""
    code = (
        "import sys\nfrom ringfence_client import Part, envelope\nbefore = set(sys.modules)\n"
        "from ringfence_client import GroupConsumer\nprint(*before)\nprint(GroupConsumer.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, consumer = done.stdout.splitlines()

    assert {part.split(".")[0] for part in loaded.split()}.isdisjoint(
        {"aiokafka", "confluent_kafka", "pydantic", "aiohttp", "click", "asyncio"}
    )
    assert {part for part in loaded.split() if part.startswith("ringfence")} == {
        "ringfence_client", "ringfence_client.handlers", "ringfence_client.handlers.envelope",
        "ringfence_kafka", "ringfence_kafka.protocol", "ringfence_kafka.protocol.wire_names",
    }  # fmt: skip
    assert consumer == "ringfence_client.consumer.consumer"


def test_names_that_programs_import() -> None:
    """Every public name exists, and an unknown one raises AttributeError."""
    assert [name for name in ringfence_client.__all__ if getattr(ringfence_client, name, None) is None] == []
    with pytest.raises(AttributeError, match="has no attribute 'Envelop'"):
        _ = ringfence_client.Envelop  # type: ignore[attr-defined]
