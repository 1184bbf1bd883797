"""Bugs in progress records that have parts, and in who is blamed where a topic refuses one."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PARTS: Final = "ringfence_client/progress_parts.py"
_PARTS_TESTS: Final = "tests/unit/test_progress_parts.py"
_PROGRESS_TESTS: Final = "tests/integration/test_large_progress.py"

MUTANTS: Final = (
    Mutant(
        "all-parts-written-each-time",
        "Each acknowledgement beside many failing messages writes megabytes.",
        (Patch(_PARTS, "            if part.checksum is None:\n", "            if part.checksum != 0:\n"),),
        f"{_PARTS_TESTS}::test_changes_alone_are_written",
    ),
    Mutant(
        "part-without-its-finished-offsets",
        "Messages that finish between failing ones are handled again by the next holder.",
        (Patch(_PARTS, "part.finished, part.checksum = finished, None", "part.finished = finished"),),
        f"{_PARTS_TESTS}::test_any_history",
    ),
    Mutant(
        "lost-write-counts-as-written",
        "After a failed transaction the next holder finds parts of an older write.",
        (
            Patch(
                "ringfence_client/progress_parts.py",
                "            part.checksum = None\n\n    def _note",
                "            pass\n\n    def _note",
            ),
        ),
        f"{_PARTS_TESTS}::test_any_history",
    ),
    Mutant(
        "part-of-another-write-believed",
        "A reader puts together what was never so.",
        (Patch(_PARTS, "if value is None or zlib.crc32(value) != checksum:", "if value is None:"),),
        f"{_PARTS_TESTS}::test_missing_part_is_noticed",
    ),
    Mutant(
        "fetches-left-to-the-collector",
        "A consumer with many failing groups takes a megabyte of memory for each attempt.",
        (
            Patch(
                "ringfence_client/parked.py",
                "            insides.drop_fetched(consumer, insides.fetched(consumer))\n        if not records:",
                "        if not records:",
            ),
        ),
        f"{_PROGRESS_TESTS}::test_readings_leave_nothing_behind",
    ),
    Mutant(
        "no-warning-before-a-partition-is-full",
        "A full partition stops, and nobody was warned.",
        (
            Patch(
                "ringfence_client/writer.py",
                "if crowding >= CROWDED and not self._crowded:",
                "if crowding > 1 and not self._crowded:",
            ),
        ),
        f"{_PROGRESS_TESTS}::test_warns_before_it_is_full",
    ),
    Mutant(
        "letters-blamed-for-progress",
        "The progress topic refuses a record, and the operator looks at the dead-letter topic.",
        (
            Patch(
                "ringfence_client/writer.py",
                "if letters and (not refusing or self._dead_letters.topic.name in refusing):",
                "if letters:",
            ),
        ),
        f"{_PROGRESS_TESTS}::test_refused_progress_is_named",
    ),
)
