"""Receipts of an outbox: the verdict on each message, beside a worker."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.embedded.broker import EmbeddedBroker
from ringfence_client import Outbox, OutboxError, Part, Receipt, Verdict, envelope
from ringfence_client.receipts.outgoing import OutgoingMessage
from ringfence_kafka.config.load import load
from ringfence_kafka.errors import ConfigurationError, MissingTopicError
from tests.support import kafka
from tests.support.checkout import ROOT
from tests.support.worker import Running, configure, run_verb, worker

APP = "receipts"
ADDRESSES: list[dict[str, Any]] = [
    {"name": "receipts", "partitions": 4, "duplicates": "divert"},
    {"name": "receipts-one", "partitions": 4, "lanes": 1, "id_cache_size": 3},
    {"name": "receipts-memory", "partitions": 2, "persist_id_cache": False},
    {"name": "receipts-off", "partitions": 2, "id_cache_size": 0},
    {"name": "receipts-narrow", "partitions": 1},
    {"name": "receipts-other", "partitions": 2},
    {"name": "receipts-units", "partitions": 2, "transaction_addresses": ["receipts-other"]},
    {"name": "receipts-chained", "partitions": 4, "input_topic": "receipts.accepted"},
]
ADDRESS = ADDRESSES[0]["name"]


@pytest.fixture(scope="module")
def config(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a configuration whose topics exist; one accepted topic takes little."""
    kafka.create_topics(
        broker.bootstrap_servers, {"receipts-narrow.accepted": (1, {"max.message.bytes": "5000"})}
    )
    return configure(tmp_path_factory.mktemp(APP), broker.bootstrap_servers, APP, ADDRESSES)


@pytest.fixture(scope="module")
def running(broker: EmbeddedBroker, config: Path) -> Iterator[Running]:
    with worker(config, APP) as process:
        yield Running(broker.bootstrap_servers, process, ADDRESSES, APP)


class Misdirecting(Outbox):
    """Sends each message to the partition behind its home, as a producer with another partitioner does."""

    def _partition(self, producer: Any, message: OutgoingMessage) -> int:
        return (super()._partition(producer, message) + 1) % 4


async def test_verdicts(running: Running, config: Path) -> None:
    """A new ID is ACCEPTED. A known one is a DUPLICATE, with place and time of its original. Without an ID nothing is checked."""
    async with Outbox(config, ADDRESS) as outbox:
        first = await outbox.send("v", duplicate_id="verdicts", key="g", headers=[("h", b"1")])
        second = await outbox.send("v", duplicate_id="verdicts", key="g")
        third = await outbox.send("other", duplicate_id="verdicts", key="g")
        plain = await outbox.send("v", key="g")

    record = next(item for item in running.settled(ADDRESS) if item.source == first.source)
    assert (record.id, record.key, record.value) == (b"verdicts", b"g", b"v")
    assert ("h", b"1") in record.headers
    assert first == Receipt(verdict=Verdict.ACCEPTED, source=first.source)
    assert second.verdict == "DUPLICATE"
    assert (second.original, second.original_time) == (first.source, record.timestamp)
    assert second.source != first.source
    assert (third.verdict, third.original) == ("CONFLICT", first.source)
    assert plain.verdict == "UNCHECKED"
    assert [item.accepted_source for item in (first, second, plain)] == [
        first.source, first.source, plain.source,
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [Outbox, Misdirecting], ids=["home", "forwarded"])
async def test_receipts_fit_the_outputs(running: Running, config: Path, kind: type[Outbox]) -> None:
    """Many sends at once: the receipts say ACCEPTED exactly for messages that were accepted, forwarded ones included."""
    async with kind(config, ADDRESS) as outbox:
        receipts = await asyncio.gather(
            *(
                outbox.send(f"{number}", duplicate_id=f"{kind.__name__}-{number // 2}", key=f"g{number // 4}")
                for number in range(400)
            )
        )
    sources = {item.source for item in running.settled(ADDRESS)}
    diverted = {
        item.source: dict(item.headers)["_RF_ORIGINAL"] for item in running.read(f"{ADDRESS}.duplicates", 4)
    }

    accepted = [item for item in receipts if item.verdict is Verdict.ACCEPTED]
    duplicates = [item for item in receipts if item.verdict is Verdict.CONFLICT]
    assert len(accepted) == len(duplicates) == 200
    assert {item.source for item in accepted} <= sources
    assert {item.source for item in duplicates}.isdisjoint(sources)
    for item in duplicates:
        assert item.original is not None
        assert diverted[item.source] == item.original.encode()


async def test_a_ring_of_several_partitions(running: Running, config: Path) -> None:
    """With one lane an ID counts in all partitions. An overwritten ID is accepted again, and its new place is the original from then on."""
    async with Outbox(config, "receipts-one") as outbox:
        first = await outbox.send("v", duplicate_id="a", key="g1")
        elsewhere = await outbox.send("v", duplicate_id="a", key="g2")
        others = [await outbox.send("v", duplicate_id=f"b{number}") for number in range(3)]
        again = await outbox.send("v", duplicate_id="a", key="g1")
        repeated = await outbox.send("v", duplicate_id="a", key="g2")

    assert (elsewhere.verdict, elsewhere.original) == (Verdict.DUPLICATE, first.source)
    assert {item.verdict for item in others} == {Verdict.ACCEPTED}
    assert again.verdict is Verdict.ACCEPTED
    assert (repeated.verdict, repeated.original) == (Verdict.DUPLICATE, again.source)


async def test_ids_in_no_changelog(running: Running, config: Path) -> None:
    """A ring in memory gives verdicts too, without originals. An address that remembers nothing checks nothing."""
    async with Outbox(config, "receipts-memory") as outbox:
        found = [await outbox.send("v", duplicate_id="a", key=key) for key in ("g", "g", None)]
    async with Outbox(config, "receipts-off") as outbox:
        unchecked = [await outbox.send("v", duplicate_id="a") for _ in range(2)]

    accepted = {item.source for item in running.settled("receipts-memory")}
    assert [item.verdict for item in found[:2]] == [Verdict.ACCEPTED, Verdict.DUPLICATE]
    assert [item.source in accepted for item in found] == [item.verdict is Verdict.ACCEPTED for item in found]
    assert found[1].original is None
    assert {item.verdict for item in unchecked} == {Verdict.UNCHECKED}


async def test_refused_message(running: Running, config: Path) -> None:
    """A message that its output does not take is QUARANTINED, with the reason. A smaller one with the same ID is accepted."""
    async with Outbox(config, "receipts-narrow") as outbox:
        refused = await outbox.send("x" * 9_000, duplicate_id="a")
        without_id = await outbox.send("x" * 9_000)
        small = await outbox.send("x", duplicate_id="a")
        again = await outbox.send("x" * 9_000, duplicate_id="a")
        with pytest.raises(OutboxError, match="not sent: it is larger than the topic takes"):
            await outbox.send("x" * 2_000_000, duplicate_id="a")
        after = await outbox.send("x", duplicate_id="b")

    assert refused.verdict is without_id.verdict is Verdict.QUARANTINED
    assert (again.verdict, again.original) == (Verdict.CONFLICT, small.source)  # not even looked at
    assert (refused.reason or "").endswith("receipts-narrow.accepted takes max.message.bytes = 5000")
    assert refused.accepted_source is None
    assert small.verdict is after.verdict is Verdict.ACCEPTED


async def test_transactions(running: Running, config: Path) -> None:
    """A transaction has one verdict. A known ID of one of its parts makes all of it a duplicate."""
    async with Outbox(config, "receipts-units") as outbox:
        parts = [Part("v", "g1", headers=[("_AMQ_DUPL_ID", "part")]), Part("w", "g2", "receipts-other")]
        value, headers = envelope(parts, "t1")
        first = await outbox.send(value, headers=headers, key="t")
        second = await outbox.send(value, headers=headers, key="t")
        value, headers = envelope(parts, "t2")
        overlapping = await outbox.send(value, headers=headers, key="t")
        value, headers = envelope(parts)
        with pytest.raises(ValueError, match="no ID of its own"):
            await outbox.send(value, headers=headers, key="t")

    assert first.verdict is Verdict.ACCEPTED
    assert (second.verdict, second.original) == (Verdict.DUPLICATE, first.source)
    assert (overlapping.verdict, overlapping.original) == (Verdict.DUPLICATE, None)


async def test_a_named_sender(running: Running, config: Path) -> None:
    """A named sender has the same answer for the same message, also after a restart. Other senders get DUPLICATE."""
    async with Outbox(config, ADDRESS, sender="shop-1") as outbox:
        first = await outbox.send("v", duplicate_id="named")
    async with Outbox(config, ADDRESS, sender="shop-1") as outbox:
        again = await outbox.send("v", duplicate_id="named")
        changed = await outbox.send("w", duplicate_id="named")
    async with Outbox(config, ADDRESS, sender="shop-2") as outbox:
        other = await outbox.send("v", duplicate_id="named")

    assert first.verdict is Verdict.ACCEPTED
    assert again == first
    assert [changed.verdict, other.verdict] == [Verdict.CONFLICT, Verdict.DUPLICATE]
    assert [changed.original, other.original] == [first.source] * 2


def test_without_an_event_loop(running: Running, config: Path) -> None:
    """``with`` gives an outbox whose calls block; threads share it."""
    with Outbox(load(config), ADDRESS) as outbox, ThreadPoolExecutor(8) as threads:
        receipts = list(
            threads.map(lambda number: outbox.send("v", duplicate_id=f"threads-{number // 2}"), range(40))
        )

    assert [item.verdict for item in receipts].count(Verdict.ACCEPTED) == 20


def test_verdict_by_hand(running: Running, config: Path) -> None:
    """``ringfence verdict`` names the accepted message of an ID, or a refused one, or says that nothing is known."""
    with Outbox(config, "receipts-narrow") as outbox:
        accepted = outbox.send("x", duplicate_id="by hand")
        refused = outbox.send("x" * 9_000, duplicate_id="too large")

    def ask(identity: str, *options: str, address: str = "receipts-narrow") -> tuple[int, str]:
        asked = run_verb("verdict", address, identity, *options, "--config", str(config), check=False)
        return asked.returncode, asked.stdout

    code, line = ask("by hand")
    assert code == 0
    assert line.startswith(f"ACCEPTED  {accepted.source}  ")
    code, line = ask("too large")
    assert code == 1
    assert line == f"QUARANTINED  {refused.source}  {refused.reason}\n"
    code, line = ask("nobody", "--json")
    assert (code, json.loads(line)) == (1, {"verdict": "UNKNOWN", "waiting": 0})
    assert ask("a", address="receipts-memory")[1].endswith("no ID can be found\n")


def test_verdict_of_several_lanes(running: Running, config: Path) -> None:
    """``ringfence verdict`` names each acceptance of an ID that came with groups of several lanes."""
    with Outbox(config, ADDRESS) as outbox:
        receipts = [outbox.send("x", duplicate_id="several lanes", key=f"g{number}") for number in range(20)]
    sources = [item.source for item in receipts if item.verdict is Verdict.ACCEPTED]
    shown = run_verb("verdict", ADDRESS, "several lanes", "--config", str(config))
    document = json.loads(
        run_verb("verdict", ADDRESS, "several lanes", "--json", "--config", str(config)).stdout
    )

    assert len(sources) > 1
    assert [line.split()[1] for line in shown.stdout.splitlines()] == sources
    assert f"{len(sources)} lanes accepted it" in shown.stderr
    assert [item["source"] for item in document["acceptances"]] == sources
    assert document["source"] == sources[-1]


def test_the_example(running: Running, config: Path, tmp_path: Path) -> None:
    """The example of docs/receipts.md runs as it stands there, but for its address. It has the same answer each time."""
    page = (ROOT / "docs" / "receipts.md").read_text("utf-8")
    (text,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    program = tmp_path / "place_order.py"
    program.write_text(text.replace('"orders"', f'"{ADDRESS}"'))

    said = [
        subprocess.run(
            [sys.executable, str(program), str(config)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for _ in range(2)
    ]

    assert re.fullmatch(rf"created {ADDRESS}/[0-3]/\d+\n", said[0])
    assert said[1] == said[0]


async def test_errors_at_the_start(bootstrap: str, config: Path, tmp_path: Path) -> None:
    """An address that other addresses feed, that nobody knows, or without topics is refused by name."""
    with pytest.raises(ConfigurationError, match="the input topic of receipts-chained is receipts"):
        Outbox(config, "receipts-chained")
    with pytest.raises(ConfigurationError, match="unknown address 'nobody'"):
        Outbox(config, "nobody")
    bare = tmp_path / "bare.toml"
    bare.write_text(f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[[addresses]]\nname = "receipts-bare"\n')
    with pytest.raises(MissingTopicError, match="run 'ringfence topics create'"):
        async with Outbox(bare, "receipts-bare"):
            pass
