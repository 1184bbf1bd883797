"""Bugs in what a load is said to need: too little is planned, and nobody is told."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_MODEL: Final = "app/plan/model.py"
_TESTS: Final = "tests/unit/test_plan.py"

MUTANTS: Final = (
    Mutant(
        "plan-without-catching-up",
        "After an outage workers are as fast as messages come, and the backlog stays.",
        (
            Patch(
                "app/plan/demand.py",
                "return self.rate * (1 + self.outage_s / (self.catch_up_s or self.outage_s))",
                "return self.rate",
            ),
        ),
        f"{_TESTS}::test_an_outage_asks_for_more_workers",
    ),
    Mutant(
        "plan-old-disk-is-used",
        "After a day's outage a start is planned as if RocksDB were used.",
        (Patch(_MODEL, "if demand.outage_s > STALE_S else", "if demand.outage_s < 0 else"),),
        f"{_TESTS}::test_an_old_disk_is_no_help",
    ),
    Mutant(
        "plan-memory-without-what-is-under-way",
        "A worker is planned with its rings alone, and the system ends it.",
        (
            Patch(
                _MODEL,
                "return measured.PROCESS.value + measured.BUFFER_FACTOR.value * demand.buffer_bytes",
                "return measured.PROCESS.value",
            ),
        ),
        f"{_TESTS}::test_memory_is_no_less_than_any_peak",
    ),
    Mutant(
        "plan-nobody-is-away",
        "The IDs of a worker that is away fit into no other.",
        (Patch(_MODEL, "even = min(UNEVEN / needed, 1.0)", "even = min(UNEVEN / (needed + SPARE), 1.0)"),),
        f"{_TESTS}::test_one_worker_may_be_away",
    ),
)
