"""Records that no client of ours could have written."""

import asyncio
import time
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from tests.support import kafka
from tests.support.kafka import Sent
from tests.support.worker import configure, wait_for, worker


class Latin1(str):
    """A header name as a client writes it that takes names for mere bytes, as librdkafka does."""

    __slots__ = ()

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        """Not UTF-8."""
        return super().encode("latin-1")


async def _send_malformed(bootstrap: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        builder = producer.create_batch()
        records = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 10_000)
        records.append(0, int(time.time() * 1000), b"g", b"bad", [(Latin1("größe"), b"1")])
        builder._builder, builder._relative_offset = records, 1
        await (await producer.send_batch(builder, topic, partition=0))


def test_header_name_that_is_not_utf8(bootstrap: str, tmp_path: Path) -> None:
    """It goes to quarantine, and the rest flows: no record whatever ends a worker."""
    name = kafka.unique("malformed")
    config = configure(tmp_path, bootstrap, name, [{"name": name, "partitions": 2}])
    with worker(config, "w") as process:
        kafka.send(bootstrap, name, [Sent(None, b"g", b"before")])
        asyncio.run(_send_malformed(bootstrap, name))
        kafka.send(bootstrap, name, [Sent(None, b"g", b"after")])
        wait_for(
            lambda: not process.running or len(kafka.read_all(bootstrap, f"{name}.quarantine", 2)) == 1,
            process.log,
        )
        assert process.running, process.log()[-2_000:]
        got = kafka.wait_count(bootstrap, f"{name}.accepted", 2, 2)

        assert [each.value for each in got] == [b"before", b"after"]
