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


class Trial:
    """An address that is tried out, and one behind it in a chain that enforces."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder, self.app = bootstrap, folder, kafka.unique("observe")
        self.name, self.behind = f"{self.app}-orders", f"{self.app}-billing"
        self.config = folder

    def configure(self, mode: str) -> None:
        addresses: list[dict[str, Any]] = [
            {"name": self.name, "partitions": 2, "mode": mode},
            {"name": self.behind, "partitions": 2, "input_topic": f"{self.name}.accepted"},
        ]
        self.config = configure(self.folder, self.bootstrap, self.app, addresses)

    def send(self, **ids: bytes | None) -> None:
        """Send messages by value and ID, and wait until both addresses are through."""
        sent = [Sent(duplicate_id, HOME, value.encode()) for value, duplicate_id in ids.items()]
        kafka.send(self.bootstrap, self.name, sent, 0)
        for topic in (self.name, f"{self.name}.accepted"):
            wait_for(functools.partial(kafka.consumed, self.bootstrap, self.app, topic, 2), lambda: self.app)

    def accepted(self, name: str) -> list[Got]:
        return kafka.read_all(self.bootstrap, f"{name}.accepted", 2)

    def switch(self) -> tuple[str, str]:
        """Observe, then enforce; return the page of metrics and the status while it observed."""
        self.configure("observe")
        with worker(self.config, self.app) as running:
            self.send(a=b"1", b=b"1", c=b"2", d=None, e=b"1")
            metrics = running.page("/metrics")
            status = run_verb("status", "--json", "--config", str(self.config), check=False).stdout
        self.configure("enforce")
        with worker(self.config, self.app):
            self.send(f=b"2", g=b"3", h=b"1", i=b"3")
        return metrics, status


def _verdict(record: Got) -> bytes | None:
    return dict(record.headers).get("_RF_VERDICT")


def test_observe_then_enforce(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """Duplicates pass in order with their verdict, and are counted; when the address enforces, it has forgotten none of their IDs.

    A chained address that enforces drops them meanwhile, and shows no verdict of the one before it.
    """
    trial = Trial(broker.bootstrap_servers, tmp_path)
    metrics, status = trial.switch()

    original = f"DUPLICATE {trial.name}/0/0".encode()
    found = [(record.value, _verdict(record)) for record in trial.accepted(trial.name)]
    assert found == [
        (b"a", b"ACCEPTED"), (b"b", original), (b"c", b"ACCEPTED"), (b"d", b"UNCHECKED"), (b"e", original), (b"g", None),
    ]  # fmt: skip
    behind = trial.accepted(trial.behind)
    assert [(record.value, _verdict(record)) for record in behind] == [
        (value, None) for value in (b"a", b"c", b"d", b"g")
    ]
    assert f'ringfence_observed_duplicates_total{{address="{trial.name}"}} 2.0' in metrics
    assert f'ringfence_observed_duplicates_total{{address="{trial.behind}"}} 0.0' in metrics
    (note,) = [item for item in json.loads(status)["findings"] if "observes" in item["what"]]
    assert (note["where"], note["stands"]) == (f"address {trial.name}", False)
    assert "of 5 messages, 2 duplicates passed" in note["what"]
