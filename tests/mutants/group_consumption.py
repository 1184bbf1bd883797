"""Bugs in the order of groups, in attempts and in dead letters."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_ATTEMPTS: Final = "ringfence_client/dispatch/attempt.py"
_LEDGER: Final = "ringfence_client/window/ledger.py"
_RETRIES: Final = "ringfence_client/handlers/retries.py"
_GROUP_SICK_TESTS: Final = "tests/integration/test_failing_groups.py"
_LEDGER_TEST: Final = "tests/unit/ringfence_client/window/test_ledger.py::test_one_owner_and_one_order"

MUTANTS: Final = (
    Mutant(
        "owned-group-not-skipped",
        "Two consumers process messages of one group at the same time.",
        (
            Patch(_LEDGER, "return group.owner is owner", "return (owner is None or group.owner is owner)"),
            Patch(_LEDGER, " = self._free if owner is None else owner.heads", ", owner = self._free, None"),
        ),
        _LEDGER_TEST,
    ),
    Mutant(
        "release-leaves-the-later-held",
        "A consumer finishes the second of a group after it put the first back: the order is turned round.",
        (
            Patch(_LEDGER, "released = group.held[index:]", "released = group.held[index : index + 1]"),
            Patch(_LEDGER, "del group.held[index:]", "del group.held[index]"),
        ),
        _LEDGER_TEST,
    ),
    Mutant(
        "floor-past-the-unfinished",
        "What is in the works is committed: a crash loses it.",
        Patch("ringfence_client/progress/watermark.py", "return first", "return self._end"),
        "tests/property/test_watermark_model.py::test_watermark_is_the_sets",
    ),
    Mutant(
        "suspects-tried-together",
        "Innocent messages become dead letters with the one that kills its process.",
        Patch("ringfence_client/dispatch/poison_messages.py", "due and not self._alone and", "due and"),
        "tests/integration/test_lease_takeover.py::test_last_attempts_of_suspects",
    ),
    Mutant(
        "dead-letter-lost-in-the-making",
        "A message counts as finished, and the dead letter that should tell of it was never written.",
        Patch(
            "ringfence_client/partition/progress_writer.py",
            "dead_lettered=frozenset(letter.offset for letter in letters if",
            "dead_lettered=frozenset(letter.offset for letter in self.letters._pending if",
        ),
        f"{_GROUP_SICK_TESTS}::test_dead_letters_refused",
    ),
    Mutant(
        "dead-letters-hold-up-the-progress",
        "A missing dead-letter topic stops its whole partition.",
        Patch("ringfence_client/partition/dead_letters.py", "() if resting else tuple(self.", "tuple(self."),
        f"{_GROUP_SICK_TESTS}::test_dead_letters_refused",
    ),
    Mutant(
        "count-alone",
        "A message is given up seconds after it failed first, while what it needs restarts.",
        Patch(_RETRIES, "return max(0.0, self.retry_time - passed)", "return 0.0"),
        "tests/unit/ringfence_client/handlers/test_retries.py::test_a_new_holder_keeps_the_retry_time",
    ),
    Mutant(
        "half-done-counts-as-done",
        "A handler that swallows its cancellation and returns acknowledges what it left out.",
        Patch(_ATTEMPTS, "and (error is not None or not self._runs.in_threads):", "and error is not None:"),
        "tests/integration/test_hanging_handlers.py::test_cancelled_and_returned",
    ),
    Mutant(
        "parked-group-goes-on",
        "The group of a dead letter does not wait for it, although the consumer promises that.",
        Patch(_ATTEMPTS, ".unblocked(offset)) is not None:", ".unblocked(offset)) is not None and False:"),
        "tests/integration/test_dlq.py::test_parked_group",
    ),
    Mutant(
        "parked-message-without-a-letter",
        "A parked message whose dead letter is gone is dropped with the answer that it is in the dead letters.",
        Patch("ringfence_client/dispatch/dispatcher.py", "set(chosen).intersection(lost)", "()"),
        "tests/integration/test_groups.py::test_parked_message_whose_dead_letter_is_gone",
    ),
    Mutant(
        "group-in-place-of-the-key",
        "A handler gets the group as the key, and not the key that the producer sent.",
        Patch(
            "ringfence_client/handlers/message.py",
            "key = own.get(wire_names.HEADER_KEY, record.key)",
            "key = record.key",
        ),
        "tests/unit/ringfence_client/handlers/test_message.py::test_null_key",
    ),
)
