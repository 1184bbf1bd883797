"""An address that only observes, and then enforces, through workers on a real broker."""

import functools
import json
from pathlib import Path
from typing import Any

from app.embedded.broker import EmbeddedBroker
from tests.support import kafka
from tests.support.kafka import Got, Sent, at_home
from tests.support.worker import configure, run_verb, wait_for, worker

HOME = at_home(0, 2)


def _verdict(record: Got) -> bytes | None:
    return dict(record.headers).get("_RF_VERDICT")


def test_observe_then_enforce(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Duplicates pass in order with their verdict, and are counted; when the address enforces, it has forgotten none of their IDs.

    A chained address that enforces drops them meanwhile, and shows no verdict of the one before it.
    """
    bootstrap, app = broker.bootstrap_servers, kafka.unique("observe")
    name, behind = f"{app}-orders", f"{app}-billing"
    chained: dict[str, Any] = {"name": behind, "partitions": 2, "input_topic": f"{name}.accepted"}

    def configured(mode: str) -> Path:
        return configure(tmp_path, bootstrap, app, [{"name": name, "partitions": 2, "mode": mode}, chained])

    def send(**ids: bytes | None) -> None:
        """Send messages by value and ID, and wait until both addresses are through."""
        sent = [Sent(duplicate_id, HOME, value.encode()) for value, duplicate_id in ids.items()]
        kafka.send(bootstrap, name, sent, 0)
        for topic in (name, f"{name}.accepted"):
            wait_for(functools.partial(kafka.consumed, bootstrap, app, topic, 2), lambda: app)

    def accepted(address: str) -> list[tuple[bytes | None, bytes | None]]:
        return [(item.value, _verdict(item)) for item in kafka.read_all(bootstrap, f"{address}.accepted", 2)]

    config = configured("observe")
    with worker(config, app) as running:
        send(a=b"1", b=b"1", c=b"2", d=None, e=b"1")
        metrics = running.page("/metrics")
        done = run_verb("status", "--json", "--config", str(config), check=False)
    with worker(configured("enforce"), app):
        send(f=b"2", g=b"3", h=b"1", i=b"3")

    original = f"DUPLICATE {name}/0/0".encode()
    assert accepted(name) == [
        (b"a", b"ACCEPTED"), (b"b", original), (b"c", b"ACCEPTED"), (b"d", b"UNCHECKED"), (b"e", original), (b"g", None),
    ]  # fmt: skip
    assert accepted(behind) == [(value, None) for value in (b"a", b"c", b"d", b"g")]
    assert f'ringfence_observed_duplicates_total{{address="{name}"}} 2.0' in metrics
    assert f'ringfence_observed_duplicates_total{{address="{behind}"}} 0.0' in metrics
    (note,) = [item for item in json.loads(done.stdout)["findings"] if "observes" in item["what"]]
    assert (note["where"], note["stands"]) == (f"address {name}", False)
    assert "of 5 messages, 2 duplicates passed" in note["what"]
