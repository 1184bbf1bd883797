"""Random and damaged fetches for the native core: it touches no foreign memory, whatever a broker sends.

``python -m tests.property.fuzz_core SEED SECONDS [CORE]``; CORE: another build of it, for example with the compiler's sanitizers. Ends with
status 0 when nothing was found; a memory error ends the process by itself.
"""

import contextlib
import importlib.util
import random
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
NAMES: Final = ("_AMQ_DUPL_ID", "_RF_SOURCE", "_RF_KEY", "_RF_HOP", "a", "", "n" * 200, "\u00e9")
INTERESTING: Final = (0, 1, 2, 3, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
LEAKED_BLOCKS_MAX: Final = 20_000


def use(path: str) -> None:
    spec = importlib.util.spec_from_file_location("native._core", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["native._core"] = module


def varint(value: int) -> bytes:
    """Encode a varint as a record has it; of any size, and not always in the fewest bytes."""
    rest = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


class Fuzz:
    """Random work for the core, by one seed."""

    def __init__(self, seed: int) -> None:
        from agents.batch import native_records
        from ringfence_kafka.aiokafka_patches.fetch_buffer import decompress
        from ringfence_kafka.producer.transactional import BatchForm
        from tests.property.test_native_path import World
        from tests.support.records import stored_batches as made

        self.rng = random.Random(seed)
        self.raw, self.made, self.decompress = native_records, made, decompress
        self.worlds = [
            World({"id_cache_size": 50, **more}, BatchForm(size, 0), size, (homes, 3), 0)
            for more, size, homes in (
                ({}, 2**20, 1),
                ({"duplicate_id_from": "value"}, 500, 1),
                ({"duplicate_id_from": "key", "group_header": "a"}, 2**20, 1),
                ({}, 300, 3),
                ({"duplicate_id_from": ["value", "header:_AMQ_DUPL_ID", "key"]}, 2**20, 1),
                ({"duplicate_id_from": ["header:_AMQ_DUPL_ID", "key"]}, 400, 3),
            )
        ]
        self.parsed = self.planned = self.gathered = self.offset = 0

    def batch(self, offset: int) -> bytes:
        rng = self.rng
        records = [
            self.made.Stored(
                offset + number,
                rng.choice([0, 1_700_000_000_000, 2**62]),
                rng.choice([None, b"", b"g", rng.randbytes(rng.randrange(90))]),
                rng.choice([None, b"", rng.randbytes(rng.randrange(400))]),
                [
                    (rng.choice(NAMES), rng.choice([None, b"", b"7", rng.randbytes(rng.randrange(300))]))
                    for _ in range(rng.choice([0, 1, 1, 2, 5]))
                ],
            )
            for number in range(rng.choice([1, 2, 5, 30]))
        ]
        flags = rng.choice([0, 0, self.made.LOG_APPEND_TIME, self.made.TRANSACTIONAL])
        return bytes(self.made.stored(records, rng.choice([0, 0, 0, 1, 2, 3, 4]), rng.choice([-1, 7]), flags))

    def forged(self, offset: int) -> bytes:
        """Return a batch whose header and checksum are right, and whose records are not."""
        rng = self.rng
        body = bytearray()
        numbers = (0, 1, -1, -2, 5, 63, 64, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1, -(2**63))
        for _ in range(rng.randrange(1, 40)):
            piece = varint(rng.choice(numbers)) if rng.random() < 0.8 else rng.randbytes(rng.randrange(9))
            body += piece
        if rng.random() < 0.7:
            body[:0] = varint(rng.choice([len(body), len(body) - 1, len(body) + 1])) + b"\0"
        count = rng.choice([0, 1, 1, 2, len(body) // 7, 2**31 - 1, -1])
        attributes = rng.choice([0, 0, 0, 16, 32, 48, 8, 1, 3, 5])
        batch = bytearray(
            HEADER.pack(offset, 49 + len(body), 0, 2, 0, attributes, rng.choice([0, count, 9, -1, 2**31 - 1]) if count < 2**31 else 0,
                        0, 0, rng.choice([-1, 7]), 0, 0, count)
        ) + body  # fmt: skip
        return bytes(self.made.checked(batch))

    def damaged(self, batch: bytes) -> bytes:
        """Return the batch with some bytes changed or cut off, mostly under a checksum that fits."""
        rng, found = self.rng, bytearray(batch)
        for _ in range(rng.choice([0, 1, 1, 2, 8])):
            place = rng.randrange(len(found))
            found[place] = rng.choice([found[place] ^ 1 << rng.randrange(8), rng.choice(INTERESTING)])
        if rng.random() < 0.1:
            found = found[: rng.randrange(1, len(found) + 1)]
        if rng.random() < 0.8 and len(found) > 61:
            struct.pack_into(">i", found, 8, len(found) - 12)
            return bytes(self.made.checked(found))
        return bytes(found)

    def fetch(self) -> bytes:
        rng, offset, found = self.rng, self.offset, b""
        if rng.random() < 0.05:
            return rng.randbytes(rng.randrange(300))
        for _ in range(rng.choice([1, 1, 2, 4])):
            kind = rng.random()
            batch = self.forged(offset) if kind < 0.2 else self.batch(offset)
            found += self.damaged(batch) if kind > 0.7 else batch
            offset += rng.choice([0, 1, 40, 40, 40])
        return found if rng.random() < 0.9 else found[: rng.randrange(len(found))]

    def step(self) -> None:
        rng = self.rng
        self.offset = rng.choice([0, 100, 2**40, 2**62 - 50])
        data, begin = self.fetch(), rng.choice([0, *[self.offset] * 8, self.offset + 1, 2**62])
        aborted = [(7, rng.choice([0, 100, 2**40]))] * rng.choice([0, 1, 3])
        limits = {"records_max": rng.choice([1, 3, 10**6]), "bytes_max": rng.choice([1, 500, 10**6])}
        start, parts = begin, []
        for _ in range(10):
            options: dict[str, Any] = {"committed": rng.random() < 0.8, "start": start, **limits}
            part = self.raw.parse(data, begin, aborted, self.decompress, **options)
            if part is None:
                break
            parts.append(part.records)
            start = part.end
            if not part.more:
                break
        for records in parts:
            self.look(records)
        if len(parts) > 1:
            joined: Any = parts[0]
            for each in parts[1:]:
                joined = self.raw.joined(joined, each)
            del parts, each
            self.look(joined)

    def look(self, records: Any) -> None:
        rng, core = self.rng, records.core
        self.parsed += len(records)
        everything = list(records)
        count, content, headers = core.fitting(rng.choice([0, 600]), 3, rng.choice([-5, 0, 900, 10**9]), 100)
        assert count == len(records[:count])
        assert headers == sum(len(item.headers) for item in everything[:count])
        assert content >= sum(len(item.key or b"") + len(item.value or b"") for item in everything[:count])
        assert core.size() >= 0
        low, high = rng.randrange(-3, 12), rng.randrange(-3, 2**33)
        for part in (records[low:high], self.raw.since(records, rng.choice([0, 105, 2**62, -1]))):
            assert len(list(part)) == len(part)
        self.plan(records)

    def plan(self, records: Any) -> None:
        from agents.batch.batch import DueRecords, FetchedBatch

        if not len(records):
            return
        batch = FetchedBatch("orders", 0, records[0].offset, records[-1].offset + 1, records, 0)
        for world in self.worlds:
            plan = world.native_path.plan([DueRecords(batch, records)], world.core[0])
            if plan is not None:
                self.planned += 1
                for output in plan.outputs:
                    output.builder._build()

    def ids(self) -> None:
        """Pass a ring's IDs through changelogs and chunks that are sound, damaged, or of another lane."""
        import native
        from tables.codec import ring_key

        rng, core = self.rng, native.core
        assert core is not None
        capacity = rng.choice([0, 1, 3, 50, 100_000, 2**32 - 1])
        head = rng.choice([0, 7, 2**32 - 5, 2**62])
        timed = rng.random() < 0.5
        ids = core.Ids(capacity, rng.choice([0, head]), timed)
        for _ in range(rng.randrange(6)):
            records, head = self._ring_records(rng.choice([1, 7, 60]), head, capacity or 5)
            keys = [
                self.made.Stored(number, key=ring_key(capacity or 5, 0)[:5] + key, value=value)
                for number, (key, value) in enumerate(records)
            ]
            data = self.made.stored(keys)
            part = self.raw.parse(self.damaged(data) if rng.random() < 0.3 else data, 0, [], self.decompress)
            if part is None:
                continue
            above = rng.choice([-1, head])
            end, count, _, chunk = ids.gather(part.records.core, 0, rng.choice([1, 100]), above)
            self.gathered += count
            assert end <= len(part.records)
            assert ids.load(chunk)  # it lies behind: nothing of it is taken
            broken = bytearray(chunk)
            for _ in range(rng.randrange(3) if chunk else 0):
                broken[rng.randrange(len(broken))] = rng.choice(INTERESTING)
            with contextlib.suppress(ValueError, MemoryError):  # sequences that no ring has beside each other
                ids.load(bytes(broken[: rng.randrange(len(broken) + 1)]))
            known = ids.lookup([value[29:] for _, value in records])
            assert all(item is None or ids.low <= item <= ids.last for item in known)
            ids.settle(rng.choice([ids.low, ids.last, max(0, ids.last - 3)]), ids.last + 1)
            assert len(ids) <= len(ids.entries())
            if timed:
                ids.leaving(ids.low, rng.choice([ids.low, ids.last]), ids.last, rng.choice([0, 8]))
                for _, id_ in ids.entries()[-3:]:
                    ids.time(id_)
        while rng.random() < 0.5 and ids.let_go(rng.choice([1, 9])):
            pass

    def _ring_records(self, count: int, head: int, capacity: int) -> tuple[list[tuple[bytes, bytes]], int]:
        rng, found = self.rng, []
        for _ in range(count):
            value = struct.pack(">BQiqq", 1, head, 0, head % 2**62, 7)
            value += rng.randbytes(rng.choice([0, 1, 1, 37, 400]))
            if rng.random() < 0.02:
                value = self.rng.choice([b"", value[:28], b"\2" + value[1:], value + bytes(2**10)])
            found.append((struct.pack(">I", head % capacity if rng.random() < 0.99 else 3), value))
            head += rng.choice([1] * 60 + [0, 2, 2**31, 2**32])
        return found, min(head, 2**63 - 1)


def main(arguments: Sequence[str]) -> int:
    seed, seconds = int(arguments[0]), float(arguments[1])
    if len(arguments) > 2:
        use(arguments[2])
    fuzz = Fuzz(seed)
    began, steps, blocks = time.monotonic(), 0, 0
    while time.monotonic() < began + seconds:
        fuzz.step()
        fuzz.ids()
        steps += 1
        if steps == 1_000:
            blocks = sys.getallocatedblocks()
    more = sys.getallocatedblocks() - blocks if steps > 1_000 else 0
    print(
        f"seed {seed}: {steps} fetches, {fuzz.parsed} records read, {fuzz.planned} batches planned, "
        f"{fuzz.gathered} IDs gathered, {more} blocks more"
    )
    return int(not fuzz.parsed or not fuzz.planned or not fuzz.gathered or more > LEAKED_BLOCKS_MAX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
