"""Bugs in how a consumer keeps a partition and gives it away."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_CLAIM: Final = "ringfence_client/consumer/partition_task.py"
_SCHEDULE: Final = "ringfence_client/partition/write_schedule.py"
_GROUP_STORM_TESTS: Final = "tests/integration/test_lease_rebalances.py"

MUTANTS: Final = (
    Mutant(
        "begun-whether-covered-or-not",
        "After a rest a message is begun under a lease that somebody takes at that moment.",
        Patch(_SCHEDULE, "return clock.now() < self._covered_until", "return True"),
        "tests/integration/test_lease_takeover.py::test_holder_that_cannot_write",
    ),
    Mutant(
        "no-refresh",
        "Who is long in one message says nothing, and is taken for dead.",
        Patch(_SCHEDULE, "= self._written_at + REFRESH_S - clock.now() if running else None", "= None"),
        f"{_GROUP_STORM_TESTS}::test_one_refresh_a_second",
    ),
    Mutant(
        "acknowledged-in-vain-while-draining",
        "What was in the works at a handover is done again by the next holder.",
        Patch("ringfence_client/dispatch/attempt.py", ".window.closed and turn.", ".draining and turn."),
        f"{_GROUP_STORM_TESTS}::test_acknowledged_while_draining[undisturbed]",
    ),
    Mutant(
        "resumed-without-a-write",
        "Who was fenced in a rebalance goes on when it is over, beside the one who fenced it.",
        Patch(_CLAIM, "await held.writer.persisted()", "await asyncio.sleep(0)"),
        f"{_GROUP_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "released-while-a-handler-runs",
        "What outlives the drain time-out is run beside itself by whoever takes the released partition.",
        Patch(_CLAIM, "CLOSE_LIMIT_S, released=ended)", "CLOSE_LIMIT_S, released=True)"),
        "tests/integration/test_consumer_membership.py::test_left_behind_at_the_end",
    ),
    Mutant(
        "fenced-back-whoever-has-it",
        "A holder whose lease was taken takes it back in the middle of its successor's messages.",
        Patch(
            "ringfence_client/partition/lease_acquisition.py",
            "if progress is not None and progress.holder != lease.holder and progress != predecessor:",
            "if progress is not None and progress.holder == '':",
        ),
        f"{_GROUP_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "revoked-and-handed-out",
        "While the group decides, messages are begun of what may be another's in a moment.",
        Patch(_CLAIM, "_suspend()\n        self._disturb()\n\n    async def", "_disturb()\n\n    async def"),
        "tests/property/test_claims.py::test_histories",
    ),
)
