"""A chain of addresses, through a worker on a real broker."""

from functools import partial
from pathlib import Path
from typing import Any

from app.embedded.broker import EmbeddedBroker
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tests.support import kafka
from tests.support.kafka import Got, Sent, at_home
from tests.support.worker import configure, run_verb, wait_for, worker

APP = "chained"
FIRST, SECOND = f"{APP}-orders", f"{APP}-billing"
BETWEEN = f"{FIRST}.accepted"
ADDRESSES: list[dict[str, Any]] = [
    {"name": SECOND, "partitions": 2, "input_topic": BETWEEN, "group_header": "customer"},
    {"name": FIRST, "partitions": 2},
]


def _ours(record: Got) -> dict[str, bytes | None]:
    """Headers of Ringfence's; each appears once."""
    found = [header for header in record.headers if header[0].startswith("_RF_")]
    assert len(found) == len(dict(found))
    return dict(found)


def test_a_chain(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The second address judges the output of the first, and names its own input; headers of the first step are gone.

    Only workers write the topic between them: send, redrive and growth are refused, and name the other place.
    """
    config = configure(tmp_path, broker.bootstrap_servers, APP, ADDRESSES)
    part = ("customer", b"c")
    step = Hop(Source("b", "AbC_-67890123456789012", 0), 1)
    hop = (("_RF_BRIDGE_DUPL_ID", encode(step)), ("_RF_HOPS", b"x"))
    with worker(config, APP):
        sent = [
            Sent(b"1", at_home(0, 2), b"plain", (part,)),
            Sent(b"1", at_home(0, 2), b"again", (part,)),
            Sent(b"2", at_home(0, 2), b"bridged", (part, *hop)),
            Sent(
                None,
                at_home(0, 2),
                b'{"parts": [{"key": "p", "value": "part", "headers": [{"name": "customer", "value": "c"}]}]}',
                (("_RF_TX", b"json/1"),),
            ),
        ]
        kafka.send(broker.bootstrap_servers, FIRST, sent, 0)
        for topic in (FIRST, BETWEEN, f"{APP}-{SECOND}-forward"):
            wait_for(partial(kafka.consumed, broker.bootstrap_servers, APP, topic, 2), lambda: topic)  # noqa: B023
        between = kafka.read_all(broker.bootstrap_servers, BETWEEN, 2)
        found = {
            item.value: item for item in kafka.read_all(broker.bootstrap_servers, f"{SECOND}.accepted", 2)
        }
    refused = [
        run_verb(*verb, "--config", str(config), check=False)
        for verb in (
            ("send", SECOND),
            ("quarantine", "redrive", SECOND),
            ("topics", "grow", SECOND, "--partitions", "4", "--yes"),
        )
    ]

    assert found.keys() == {b"bridged", b"part", b"plain"}
    places = {item.value: f"{BETWEEN}/{item.partition}/{item.offset}".encode() for item in between}
    assert {value: _ours(item)["_RF_SOURCE"] for value, item in found.items()} == places
    assert {value.key for value in found.values()} == {b"c"}
    assert _ours(found[b"plain"]) == {"_RF_SOURCE": places[b"plain"], "_RF_KEY": at_home(0, 2)}
    assert _ours(found[b"bridged"])["_RF_HOPS"] == b"x"
    assert "_RF_TX_PART" not in _ours(found[b"part"])
    assert [completed_process.returncode for completed_process in refused] == [2, 2, 2]
    assert all(FIRST in completed_process.stderr for completed_process in refused)
    assert "under new duplicate IDs" in refused[1].stderr
