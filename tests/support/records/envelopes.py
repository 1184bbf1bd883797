"""Transactions that producers write, and addresses whose transactions are sent, awaited and judged."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.harness.checker.check import check
from tests.harness.checker.findings import Finding
from tests.harness.checker.order import apart
from tests.harness.history import History, Target, attributed, records
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.worker import wait_for

Part = dict[str, Any]
CAPACITY = 20_000


def part(address: str | None = None, key: str | None = None, value: str | None = "v", **headers: str) -> Part:
    named = {"address": address} if address is not None else {}
    listed = [
        {"name": name.replace("ID", "_AMQ_DUPL_ID"), "value": header} for name, header in headers.items()
    ]
    return {**named, "key": key, "value": value, "headers": listed}


def envelope(
    *parts: Any, key: bytes | None = b"k", known: bytes | None = None, timestamp: int = 0, **more: bytes
) -> Sent:
    return enveloped(json.dumps({"parts": parts}).encode(), key, known, timestamp, **more)


def enveloped(
    value: bytes | None,
    key: bytes | None = b"k",
    known: bytes | None = None,
    timestamp: int = 0,
    **more: bytes,
) -> Sent:
    return Sent(known, key, value, (("_RF_TX", b"json/1"), *more.items()), timestamp)


@dataclass
class Addresses:
    """The addresses of one application."""

    bootstrap: str
    app_id: str
    partitions: dict[str, int]
    others: dict[str, list[str]] = field(default_factory=dict)
    """By address, the addresses that parts of its transactions may go to."""
    divert: frozenset[str] = frozenset()

    def settle(self, otherwise: Callable[[], str], *names: str) -> None:
        topics = {name: self.partitions[name] for name in names or self.partitions}
        topics |= {f"{self.app_id}-{name}-forward": count for name, count in topics.items()}
        # In this order: forwarded records come from the input.
        for topic, count in topics.items():
            wait_for(partial(kafka.consumed, self.bootstrap, self.app_id, topic, count), otherwise, 120)

    def accepted(self, name: str) -> list[Got]:
        return self.read(name, "accepted")

    def read(self, name: str, kind: str) -> list[Got]:
        return kafka.read_all(self.bootstrap, f"{name}.{kind}", self.partitions[name])

    def histories(self) -> list[History]:
        return attributed([self._history(partition) for partition in self.partitions])

    def findings(self) -> list[Finding]:
        histories = self.histories()
        return [*(finding for history in histories for finding in check(history)), *apart(histories)]

    def _history(self, name: str) -> History:
        count = self.partitions[name]
        return History(
            name, count, CAPACITY, lambda key: kafka.home(key, count),
            inputs=records(name, kafka.read_all(self.bootstrap, name, count)),
            accepted=records(f"{name}.accepted", self.accepted(name)),
            diverted=records(f"{name}.duplicates", self.read(name, "duplicates")) if name in self.divert else [],
            quarantined=records(f"{name}.quarantine", self.read(name, "quarantine")),
            divert=name in self.divert,
            others={other: Target(f"{other}.accepted") for other in self.others.get(name, [])},
        )  # fmt: skip
