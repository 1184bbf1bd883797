"""Bugs in who may take which message of a group, and in what a restart repeats."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_LEDGER: Final = "ringfence_client/ledger.py"
_RUNS: Final = "ringfence_kafka/runs.py"
_WATERMARK: Final = "ringfence_client/watermark.py"
_LEDGER_TESTS: Final = "tests/unit/test_ledger.py"
_WATERMARK_TESTS: Final = "tests/unit/test_watermark.py"

_ACQUIRING: Final = (
    Mutant(
        "group-never-free-again",
        "Whoever once had a message of a group keeps the group while messages of it wait.",
        (
            Patch(
                _LEDGER,
                "if holder is not None and not group.held:",
                "if holder is not None and not group.held and not group.waiting:",
            ),
        ),
        f"{_LEDGER_TESTS}::test_shopping_cart",
    ),
    Mutant(
        "owned-group-not-skipped",
        "Two consumers process messages of one group at the same time.",
        (
            Patch(
                _LEDGER,
                "return group.owner is owner and bool",
                "return (owner is None or group.owner is owner) and bool",
            ),
            Patch(
                _LEDGER,
                "heads = self._free if owner is None else owner.heads",
                "heads, owner = self._free, None",
            ),
        ),
        f"{_LEDGER_TESTS}::test_shopping_cart",
        (f"{_LEDGER_TESTS}::test_owner_gets_more_of_its_group",),
    ),
    Mutant(
        "own-group-first",
        "A consumer that goes on with its own group leaves older messages of other groups waiting.",
        (
            Patch(
                _LEDGER,
                "if own is not None and (group is None or own.waiting[0] < group.waiting[0]):",
                "if own is not None:",
            ),
        ),
        f"{_LEDGER_TESTS}::test_own_and_free_by_age",
    ),
    Mutant(
        "free-group-first",
        "An owner with room in its group is given younger messages of others.",
        (Patch(_LEDGER, "(group is None or own.waiting[0] < group.waiting[0])", "group is None"),),
        f"{_LEDGER_TESTS}::test_own_and_free_by_age",
    ),
    Mutant(
        "one-more-than-the-prefetch",
        "A group's owner holds one message more than it can be given.",
        (Patch(_LEDGER, "len(group.held) < self._prefetch", "len(group.held) <= self._prefetch"),),
        f"{_LEDGER_TESTS}::test_prefetch",
    ),
    Mutant(
        "prefetch-not-filled-again",
        "An owner gets no more of its group before all that it holds is finished.",
        (
            Patch(
                _LEDGER,
                "                self._forget(group)\n        self._offer(group)\n",
                "                self._forget(group)\n            self._offer(group)\n",
            ),
        ),
        f"{_LEDGER_TESTS}::test_owner_gets_more_of_its_group",
    ),
    Mutant(
        "late-but-old-is-overlooked",
        "A message that comes late and is the oldest of its group is not found before a younger one.",
        (Patch(_LEDGER, "if found.waiting[0] is position:", "if len(found.waiting) == 1:"),),
        f"{_LEDGER_TESTS}::test_late_arrival_of_an_old_message",
    ),
    Mutant(
        "position-taken-twice",
        "A message that is fetched a second time is processed a second time.",
        (
            Patch(
                _LEDGER, "if position in self._messages:\n            there", "if False:\n            there"
            ),
        ),
        f"{_LEDGER_TESTS}::test_duplicate_append",
    ),
)

_RETURNING: Final = (
    Mutant(
        "release-leaves-the-later-held",
        "A consumer finishes the second of a group after it put the first back: the order is turned round.",
        (
            Patch(_LEDGER, "released = group.held[index:]", "released = group.held[index : index + 1]"),
            Patch(_LEDGER, "del group.held[index:]", "del group.held[index]"),
        ),
        f"{_LEDGER_TESTS}::test_no_inversion",
    ),
    Mutant(
        "release-takes-the-earlier",
        "What the consumer is still working on is given to another meanwhile.",
        (
            Patch(_LEDGER, "released = group.held[index:]", "released = list(group.held)"),
            Patch(_LEDGER, "del group.held[index:]", "group.held.clear()"),
        ),
        f"{_LEDGER_TESTS}::test_release_keeps_the_earlier",
        harmless="a turn puts back all that it holds, never a later message alone",
    ),
    Mutant(
        "released-at-the-end",
        "A released message is given out again after the later ones of its group.",
        (
            Patch(
                _LEDGER,
                "        for each in released:\n            heappush(group.waiting, each)\n",
                "        group.waiting += released\n",
            ),
        ),
        f"{_LEDGER_TESTS}::test_release_keeps_the_earlier",
    ),
    Mutant(
        "reject-puts-back",
        "A message that nobody can process blocks its group for ever.",
        (Patch(_LEDGER, "self.acknowledge(consumer, position)", "self.release(consumer, position)"),),
        f"{_LEDGER_TESTS}::test_discard_keeps_order",
    ),
    Mutant(
        "close-keeps-all-but-one",
        "Groups of a consumer that is gone are stuck.",
        (Patch(_LEDGER, "for each in list(holder.groups))", "for each in list(holder.groups)[:1])"),),
        f"{_LEDGER_TESTS}::test_closed_consumer",
        harmless="the consumer of the ledger is a turn, which has one group",
    ),
    Mutant(
        "anybody-acknowledges",
        "A consumer that lost its group finishes what another is working on.",
        (Patch(_LEDGER, "if group.owner.name != consumer:", "if consumer is None:"),),
        f"{_LEDGER_TESTS}::test_acting_on_what_one_does_not_hold",
        harmless="no turn finishes what it does not hold",
    ),
    Mutant(
        "purge-takes-what-is-held",
        "A purge drops a message in the middle of its processing.",
        (Patch(_LEDGER, "dropped += each.waiting\n", "dropped += each.waiting + each.held\n"),),
        f"{_LEDGER_TESTS}::test_purge",
    ),
)

_COST: Final = (
    Mutant(
        "purged-heads-are-kept",
        "Memory grows with every group that was ever purged.",
        (Patch(_LEDGER, "if len(heads) <= 2 * groups + _STALE_MIN:", "if groups >= 0:"),),
        f"{_LEDGER_TESTS}::test_purged_and_never_asked_for",
    ),
    Mutant(
        "swept-each-time",
        "Each call looks at all groups: with a million of them the consumer stands still.",
        (Patch(_LEDGER, "if len(heads) <= 2 * groups + _STALE_MIN:", "if groups < 0:"),),
        f"{_LEDGER_TESTS}::test_a_call_costs_no_more_than_the_logarithm",
    ),
    Mutant(
        "sweep-forgets-the-ungrouped",
        "Ungrouped messages are never given out once much has come and gone.",
        (Patch(_LEDGER, "chain(self._groups.values(), self._ungrouped) if", "self._groups.values() if"),),
        f"{_LEDGER_TESTS}::test_purged_and_never_asked_for",
    ),
    Mutant(
        "consumers-are-kept",
        "Memory grows with every consumer that ever came.",
        (
            Patch(
                _LEDGER,
                "            if not holder.groups:\n                del self._consumers[holder.name]\n",
                "",
            ),
        ),
        f"{_LEDGER_TESTS}::test_groups_that_come_and_go",
    ),
)

_FINISHED: Final = (
    Mutant(
        "floor-past-the-unfinished",
        "What is in the works is committed: a crash loses it.",
        (Patch(_WATERMARK, "            return first\n", "            return self._end\n"),),
        f"{_WATERMARK_TESTS}::test_in_order",
    ),
    Mutant(
        "progress-forgets-what-lies-ahead",
        "A second restart soon after the first repeats what was finished.",
        (Patch(_WATERMARK, "        found.extend(run for run in self._pending() if run[0] > end)\n", ""),),
        f"{_WATERMARK_TESTS}::test_written_down_before_all_is_read_again",
    ),
    Mutant(
        "finished-is-due-again",
        "A restart repeats everything above the floor.",
        (Patch(_WATERMARK, "if due := not self.is_finished(offset):", "if due := True:"),),
        f"{_WATERMARK_TESTS}::test_restart",
    ),
    Mutant(
        "floor-goes-back",
        "A reader that says again how far it came sets the floor back, and what was committed is processed again.",
        (Patch(_WATERMARK, "self._end = max(self._end, offset)", "self._end = offset"),),
        f"{_WATERMARK_TESTS}::test_nothing_delivered_up_to_the_end",
        harmless="a window tells the watermark the highest offset that was read, and never a lower one",
    ),
    Mutant(
        "bitmap-the-other-way-round",
        "What one version wrote another reads as other offsets.",
        (
            Patch(_RUNS, '.to_bytes((span + 7) // 8, "little")', '.to_bytes((span + 7) // 8, "big")'),
            Patch(_RUNS, "int.from_bytes(payload, 'little')", "int.from_bytes(payload, 'big')"),
        ),
        f"{_WATERMARK_TESTS}::test_bytes",
    ),
    Mutant(
        "longer-form-written",
        "Progress of ten thousand offsets takes ten times the room.",
        (Patch(_RUNS, "if len(varints) <= (span + 7) // 8:", "if runs or not varints:"),),
        f"{_WATERMARK_TESTS}::test_size_of_alternating_runs",
        ("tests/property/test_watermark_model.py::test_round_trip",),
    ),
)

_MEMORY: Final = (
    Mutant(
        "memory-of-each-partition",
        "A consumer of two hundred partitions needs two hundred times what it was told.",
        (
            Patch(
                "ringfence_client/memory.py",
                "left = self._kept_max // 2 - self._more",
                "left = self._kept_max // 2",
            ),
        ),
        "tests/unit/test_resident.py::test_many_partitions_one_after_the_other",
    ),
    Mutant(
        "first-come-first-served",
        "The partitions that are read first use up the memory, and the last ones read each message by itself.",
        (
            Patch(
                "ringfence_client/memory.py",
                "self._own = self._kept_max // 2 // max(1, len(self._partitions))",
                "self._own = 0",
            ),
        ),
        "tests/unit/test_resident.py::test_many_partitions_one_after_the_other",
    ),
    Mutant(
        "memory-not-given-back",
        "With each rebalance there is less memory for those who stay, until each message is read by itself.",
        (Patch("ringfence_client/resident.py", "        self._memory.leave(self)\n", ""),),
        "tests/property/test_memory_model.py::test_books_and_bounds",
    ),
    Mutant(
        "fetched-and-left-behind",
        "What was fetched of partitions that have to wait stays in memory until Python looks for cycles of objects.",
        (
            Patch(
                "ringfence_kafka/insides.py",
                "            records._records_iterator.close()  # noqa: SLF001\n            records._records_iterator = None  # noqa: SLF001\n",
                "            pass\n",
            ),
        ),
        "tests/integration/test_group_memory.py::test_nothing_is_left_behind",
    ),
)

MUTANTS: Final = (*_ACQUIRING, *_RETURNING, *_COST, *_FINISHED, *_MEMORY)
