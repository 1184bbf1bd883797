"""Records that no client of ours writes, and record batches that cannot be read."""

import asyncio
from pathlib import Path

import pytest

from app.embedded.broker import EmbeddedBroker
from app.embedded.server_files import DATA
from tests.support import kafka
from tests.support.kafka import Got, Sent
from tests.support.records import unusual
from tests.support.records.unusual import GZIP, MALFORMED, Raw
from tests.support.worker import WorkerProcess, configure, one_address, wait_for, worker


def test_header_name_that_is_not_utf8(bootstrap: str, tmp_path: Path) -> None:
    """A record whose header name is not UTF-8 goes to quarantine, and the rest flows: no record ends a worker."""
    name, config = one_address(tmp_path, bootstrap, "malformed", 2)
    beside = [Raw(b"beside-0", timestamp=1_600_000_000_000), MALFORMED._replace(timestamp=1_600_000_000_001)]
    with worker(config, "w") as process:
        kafka.send(bootstrap, name, [Sent(None, b"g", b"before")])
        asyncio.run(unusual.send(bootstrap, name, [*beside, Raw(b"beside-1")], GZIP))
        asyncio.run(unusual.send(bootstrap, name, [MALFORMED], abort=True))
        kafka.send(bootstrap, name, [Sent(b"bad", b"g", b"after")])

        def outputs(kind: str) -> list[Got]:
            return kafka.read_all(bootstrap, f"{name}.{kind}", 2)

        wait_for(lambda: not process.running or kafka.committed(bootstrap, name, name)[0] == 7, process.log)
        assert process.running, process.log()[-2_000:]
        got, quarantined = outputs("accepted"), outputs("quarantine")
        log = process.log()

    reason = "the header name gr\\xf6\\xdfe is not UTF-8"
    assert [item.value for item in got] == [b"before", b"beside-0", b"beside-1", b"after"]
    assert [(item.key, item.value, item.timestamp) for item in quarantined] == [
        (b"g", b"bad", 1_600_000_000_001)
    ]
    assert quarantined[0].headers == [
        ("a", b"0"),
        ("gr\\xf6\\xdfe", b"1"),
        ("_AMQ_DUPL_ID", b"bad"),
        ("_RF_SOURCE", f"{name}/0/2".encode()),
        ("_RF_REASON", reason.encode()),
    ]
    assert f"lane {name}-0: {name}/0/2 goes to quarantine: {reason}" in log


@pytest.mark.long
def test_damaged_record_batch(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """A lane waits at a damaged batch and names its place; earlier records and other lanes flow; once it is fixed, the lane continues."""
    name = kafka.unique("damage")
    struck, other = f"{name}-struck", f"{name}-other"
    bootstrap = broker.bootstrap_servers
    config = configure(
        tmp_path, bootstrap, name, [{"name": address, "partitions": 1} for address in (struck, other)]
    )
    for value in (b"first", b"second", b"third"):
        kafka.send(bootstrap, struck, [Sent(None, b"g", value)])
    segment = broker.directory / DATA / f"{struck}-0" / f"{0:020}.log"
    _replace(segment, b"second", b"sXcond")
    with WorkerProcess(config, "w") as process:
        kafka.send(bootstrap, other, [Sent(None, b"g", b"flows")])
        wait_for(lambda: "unreadable" in process.health()[1], process.log)
        kafka.wait_count(bootstrap, f"{other}.accepted", 1)
        before = kafka.wait_count(bootstrap, f"{struck}.accepted", 1)
        status, report = process.health()
        _replace(segment, b"sXcond", b"second")
        after = kafka.wait_count(bootstrap, f"{struck}.accepted", 3)
        process.wait_ready()
        log = process.log()

    (unreadable,) = report["unreadable"]
    assert status == 503
    assert unreadable.startswith(f"{struck}/0 may not be read: the record batch at offset 1 cannot be read (")
    assert "Invalid CRC" in unreadable
    assert [item.value for item in before] == [b"first"]
    assert [item.value for item in after] == [b"first", b"second", b"third"]
    assert log.count("the record batch at offset 1 cannot be read") == 1
    assert "Traceback" not in log


def _replace(file: Path, old: bytes, new: bytes) -> None:
    """Change bytes on the disk, as a failing disk does."""
    content = file.read_bytes()
    assert content.count(old) == 1
    with file.open("r+b") as opened:
        opened.seek(content.index(old))
        opened.write(new)
