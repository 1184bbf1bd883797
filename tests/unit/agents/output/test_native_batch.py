"""Compressed record batches, by aiokafka's builder and by the core: never larger than plain ones, and what they hold is the same."""

import random
import time
from typing import Any

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

import native
from agents.output.native_batch import Filled, RawBatch
from ringfence_kafka.aiokafka_patches.batch_compression import CompressedBatch
from ringfence_kafka.producer.transactional import BatchForm
from ringfence_kafka.protocol.record_batch import BATCH_HEADER_BYTES

CODECS = {1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
VALUES = {
    "what cannot be compressed": random.Random(3).randbytes(300_000),
    "what can": b"all the same " * 20_000,
    "next to nothing": b"",
}


def _filled(builder: Any, value: bytes) -> Any:
    builder.append(timestamp=7, key=b"key", value=value, headers=[])
    builder.append(timestamp=9, key=None, value=None, headers=[])
    return builder


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", VALUES)
def test_no_larger_than_plain(codec: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that compression would enlarge goes out uncompressed, and equals the plain builder's batch; the core follows the same rule."""
    monkeypatch.setattr(time, "time", lambda: 1.0)  # gzip has it in its header
    value = VALUES[kind]
    plain = _filled(BatchBuilder(2**20, 0, is_transactional=1), value)._build()
    compressed = _filled(CompressedBatch(2**20, codec, is_transactional=1), value)
    built = compressed._build()
    batch = DefaultRecordBatch(bytes(built))

    assert compressed.size() == len(built) <= len(plain)
    assert batch.validate_crc()
    assert (batch.compression_type == codec) == (kind == "what can")
    assert [(item.timestamp, item.key, item.value) for item in batch] == [(7, b"key", value), (9, None, None)]
    if kind != "what can":
        assert built == plain
    assert compressed._build() is built
    if native.core is not None:
        filled = Filled(0, bytearray(BATCH_HEADER_BYTES), 0, 0, 0)
        assert bytes(_filled(RawBatch(BatchForm(2**20, codec), filled), value)._build()) == bytes(built)
