"""Bugs in how compressed batches are read in parts."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PARTS: Final = "ringfence_kafka/batch_parts.py"
_PARTS_TESTS: Final = "tests/unit/test_batch_parts.py"

MUTANTS: Final = (
    Mutant(
        "batches-decompressed-at-once",
        "A batch of a few kilobytes takes any amount of memory.",
        (Patch(_PARTS, "PART_BYTES: Final = 2**19", "PART_BYTES: Final = 2**30"),),
        "tests/integration/test_large_batches.py::test_memory_stays_bounded",
    ),
    Mutant(
        "all-records-taken-at-once",
        "A batch is decompressed in parts, and all of them are in memory together.",
        (Patch(_PARTS, "        if left <= 0 or (", "        if ("),),
        f"{_PARTS_TESTS}::test_who_asks_for_all_gets_a_part",
    ),
    Mutant(
        "oversized-records-read-whole",
        "One record of a few kilobytes on the wire takes any amount of memory.",
        (Patch(_PARTS, "end > max(self._oversized.limit, before + 1)", "end > 2**40"),),
        f"{_PARTS_TESTS}::test_a_record_that_no_memory_is_for",
    ),
    Mutant(
        "windows-not-counted",
        "Many partitions that each read a part keep more memory than the bound allows.",
        (
            Patch(
                "app/worker/raw_fetch.py",
                "return 0 if self.large is None else self.large.size",
                "return 0",
            ),
        ),
        f"{_PARTS_TESTS}::test_what_the_core_keeps_is_counted",
        native=True,
    ),
)
