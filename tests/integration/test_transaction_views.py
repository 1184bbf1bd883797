"""Views of transactions for operators: metrics, health, quarantine, the log, and rings."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import Running, configure, run_verb, wait_for, worker

APP = "views"
OURS, OTHER = "views-transfers", "views-payments"
ADDRESSES: list[dict[str, Any]] = [
    {"name": OURS, "partitions": 1, "transaction_addresses": [OTHER]},
    {"name": OTHER, "partitions": 2},
]
BYTES_MAX = 4_000
"""Limit of a message in the other address's accepted topic."""


def _part(address: str | None = None, identifier: str | None = None, value: str = "v") -> dict[str, Any]:
    headers = [] if identifier is None else [{"name": "_AMQ_DUPL_ID", "value": identifier}]
    return {"address": address, "key": "g", "value": value, "headers": headers}


def _envelope(*parts: dict[str, Any], id: bytes | None = None, form: bytes = b"json/1") -> Sent:  # noqa: A002 - as Sent has it
    return Sent(id, b"g", json.dumps({"parts": parts}).encode(), (("_RF_TX", form),))


RECORDS = [
    Sent(b"7", b"g"),
    _envelope(_part(None, "x"), _part(OTHER, "7"), _part(OTHER, "8"), id=b"T"),
    _envelope(_part(None), _part(OTHER, "9"), id=b"T"),
    _envelope(_part(OTHER)),
    _envelope(_part(None), _part(OTHER, "9", "x" * BYTES_MAX), id=b"U"),
    _envelope(_part("nobody"), id=b"V"),
    _envelope(_part(), _part(), {"amount": 10}, id=b"W"),
    _envelope(_part(), form=b"json/9"),
]
"""Accepted, accepted, ignored, unchecked; the others go to quarantine."""


class Seen(NamedTuple):
    """A worker that has processed these records."""

    config: Path
    running: Running
    metrics: str
    lane: dict[str, Any]
    """Health as ``/health`` shows it."""
    log: str


@pytest.fixture(scope="module")
def seen(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Yield views that are read once; the worker runs on."""
    bootstrap = broker.bootstrap_servers
    config = configure(tmp_path_factory.mktemp(APP), bootstrap, APP, ADDRESSES)
    kafka.alter_topic(bootstrap, f"{OTHER}.accepted", "max.message.bytes", str(BYTES_MAX))
    with worker(config, APP) as process:
        running = Running(bootstrap, process, ADDRESSES, APP)
        running.outcome(OURS, RECORDS)
        # A lane counts a batch when all of it is done, a moment after others see the commit.
        wait_for(
            lambda: f'ringfence_quarantined_total{{address="{OURS}"}} 4.0' in process.page("/metrics"),
            lambda: f"{process.page('/metrics')}\n{process.log()}",
        )
        lane = process.health()[1]["lanes"][f"{OURS}-0"]
        yield Seen(config, running, process.page("/metrics"), lane, process.log())


def test_metrics(seen: Seen) -> None:
    """Metrics count transactions by verdict, parts by address, and parts of each transaction; each is one message, too."""
    for line in (
        f'ringfence_messages_total{{address="{OURS}",verdict="accepted"}} 2.0',
        f'ringfence_messages_total{{address="{OURS}",verdict="duplicates"}} 1.0',
        f'ringfence_messages_total{{address="{OURS}",verdict="unchecked"}} 1.0',
        f'ringfence_transactions_total{{address="{OURS}",verdict="accepted"}} 1.0',
        f'ringfence_transactions_total{{address="{OURS}",verdict="duplicates"}} 1.0',
        f'ringfence_transactions_total{{address="{OURS}",verdict="unchecked"}} 1.0',
        f'ringfence_transactions_total{{address="{OTHER}",verdict="accepted"}} 0.0',
        f'ringfence_transactions_quarantined_total{{address="{OURS}"}} 4.0',
        f'ringfence_parts_total{{accepted_for="{OURS}",address="{OURS}"}} 1.0',
        f'ringfence_parts_total{{accepted_for="{OTHER}",address="{OURS}"}} 3.0',
        f'ringfence_transaction_parts_bucket{{address="{OURS}",le="1.0"}} 1.0',
        f'ringfence_transaction_parts_bucket{{address="{OURS}",le="3.0"}} 2.0',
        f'ringfence_transaction_parts_sum{{address="{OURS}"}} 4.0',
    ):
        assert line in seen.metrics.splitlines(), f"{line} is missing in\n{seen.metrics}"


def _find(seen: Seen, address: str, identifier: str, *more: str) -> tuple[int, Any, str]:
    done = run_verb(
        "rings", "find", address, identifier, *more, "--json", "--config", str(seen.config), check=False
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def test_ids_of_parts_are_found(seen: Seen) -> None:
    """IDs of parts are in the rings of the transaction's own address, as IDs of the parts' addresses."""
    code, own, _ = _find(seen, OURS, "7")
    _, other, said = _find(seen, OURS, "7", "--of", OTHER)

    assert (code, said) == (0, "")
    assert [(item["source"], item["of"]) for item in own["lanes"]] == [(f"{OURS}/0/0", None)]
    assert [(item["id"], item["source"], item["of"]) for item in other["lanes"]] == [
        ("7", f"{OURS}/0/1", OTHER)
    ]
    assert _find(seen, OURS, "x", "--of", OURS)[:2] == _find(seen, OURS, "x")[:2]
    assert _find(seen, OURS, "T", "--of", OTHER)[:2] == (1, {"known": False, "lanes": []})
    # Refused and ignored transactions have left nothing.
    for identifier, more in (("9", ["--of", OTHER]), ("U", []), ("V", []), ("W", [])):
        assert _find(seen, OURS, identifier, *more)[0] == 1


def test_of_what_address(seen: Seen) -> None:
    """An unknown address is an error; for an address that transactions cannot reach, a note reports it."""
    code, _, said = _find(seen, OURS, "7", "--of", "nobody")

    assert code == 2
    assert f"unknown address 'nobody': the configuration has {OURS}, {OTHER}" in said

    code, found, said = _find(seen, OTHER, "7", "--of", OURS)

    assert (code, found["known"]) == (1, False)
    assert said.startswith(f"note   {OURS} is not in transaction_addresses of {OTHER}: ")

    done = run_verb("rings", "find", OURS, "8", "--config", str(seen.config), check=False)

    assert done.returncode == 1
    assert done.stdout.endswith(f"IDs of parts for other addresses are separate: --of {OTHER}\n")
    for verb in (("rings", "find"), ("verdict",)):
        done = run_verb(*verb, OTHER, "99", "--config", str(seen.config), check=False)

        assert done.returncode == 1
        assert done.stdout.endswith(
            f"of a transaction's part: 'ringfence rings find {OURS} ID --of {OTHER}'\n"
        )
