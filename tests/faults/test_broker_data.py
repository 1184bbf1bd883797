"""The broker's data goes back in time, or one topic's does: what a worker remembers may then be ahead."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from app.embedded.broker import EmbeddedBroker
from tests.harness.nemeses.broker_data import OldCopy
from tests.harness.workloads.numbered import EXACT, Flow, wrong
from tests.support import kafka
from tests.support.worker import configure, worker

FEW: Final = 1_000


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("disturbed")) as broker:
        yield broker


def _prepare(broker: EmbeddedBroker, folder: Path, *cases: str) -> tuple[list[Flow], Path]:
    app_id = kafka.unique("back")
    names = [f"{app_id}-{case_}" for case_ in cases]
    addresses = [{"name": name, "partitions": 1, "id_cache_size": 100_000} for name in names]
    config = configure(folder, broker.bootstrap_servers, app_id, addresses)
    return [Flow(broker.bootstrap_servers, app_id, name) for name in names], config


@pytest.mark.long
@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen meanwhile"])
def test_worker_ahead_of_its_broker(disturbed: EmbeddedBroker, tmp_path: Path, frozen: bool) -> None:
    """A running worker accepts lost records again, and new ones too, after all its broker's logs lost their tail.

    Two of the four lanes are idle before the copy is made. Their producers have written nothing, and the broker then knows no sequence
    number that would be out of order. In each pair, one lane gets the resends alone, and the other gets new messages first. A worker that
    is frozen meanwhile finds other messages at its offsets.
    """
    cases = [(busy, fresh) for busy in (False, True) for fresh in (False, True)]
    flows, config = _prepare(disturbed, tmp_path, *(f"{busy:d}{fresh:d}" for busy, fresh in cases))
    old = OldCopy(disturbed, tmp_path / "copy")
    with worker(config, "w") as process:
        for flow, (busy, _) in zip(flows, cases, strict=True):
            flow.send_and_settle(FEW * busy, process)
        old.take()
        process.wait_ready()
        kept = [flow.sent for flow in flows]
        for flow in flows:
            flow.send_and_settle(FEW, process)
        if frozen:
            process.signal(signal.SIGSTOP)
        old.strike()
        left = [kafka.end_offsets(flow.bootstrap, flow.address)[0] for flow in flows]
        for flow, (_, fresh), number in zip(flows, cases, kept, strict=True):
            lost = flow.due[number:]
            del flow.due[number:]
            flow.send((FEW + 300 if frozen else 300) * fresh)
            flow.resend(number, number + FEW)
            flow.due += lost
        process.signal(signal.SIGCONT)
        accepted = [flow.settle(process) for flow in flows]
        process.wait_ready()
        results = [wrong(value, flow.due) for value, flow in zip(accepted, flows, strict=True)]
        for flow in flows:
            flow.resend(0, FEW)
            flow.send(10)
        again = [wrong(flow.settle(process), flow.due) for flow in flows]
        log = process.log()

    assert old.struck == 1
    assert left == kept
    assert results == [EXACT] * len(flows)
    assert again == [EXACT] * len(flows)
    assert "Traceback" not in log


@pytest.mark.long
def test_rocksdb_ahead_of_its_broker(disturbed: EmbeddedBroker, tmp_path: Path) -> None:
    """The same holds when the worker is down meanwhile and its RocksDB is ahead: beyond the changelog's end, or overtaken by it."""
    (shorter, regrown), config = _prepare(disturbed, tmp_path, "shorter", "regrown")
    flows = (shorter, regrown)
    old = OldCopy(disturbed, tmp_path / "copy")
    with worker(config, "w") as process:
        for flow in flows:
            flow.send_and_settle(FEW, process)
        old.take()
        process.wait_ready()
        for flow in flows:
            flow.send_and_settle(FEW, process)
        assert process.stop() == 0
        old.strike()
        lost = [flow.due[FEW:] for flow in flows]
        for flow in flows:
            del flow.due[FEW:]
        with worker(config, "other") as other:
            regrown.send_and_settle(3 * FEW, other)
            assert other.stop() == 0
        for flow, value in zip(flows, lost, strict=True):
            flow.resend(FEW, 2 * FEW)
            flow.due += value
            flow.resend(0, FEW)
        process.start()
        process.wait_ready()
        results = [wrong(flow.settle(process), flow.due) for flow in flows]
        log = process.log()

    assert old.struck == 1
    assert log.count("is rebuilt from the changelog") == 2
    assert results == [EXACT, EXACT]
