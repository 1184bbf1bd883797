"""Bugs in what is redriven, and in what waits for that."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_WINDOW: Final = "ringfence_client/window.py"
_QUARANTINE: Final = "app/repair/quarantine.py"
_SETTLED: Final = "app/repair/settled.py"
_LETTERS: Final = "app/repair/letters.py"
_REDRIVEN_TESTS: Final = "tests/unit/test_redriven.py"
_REPAIR_TESTS: Final = "tests/unit/test_repair.py"
_QUARANTINE_TESTS: Final = "tests/integration/test_quarantine.py"
_DLQ_TESTS: Final = "tests/integration/test_dlq.py"

MUTANTS: Final = (
    Mutant(
        "each-copy-is-redriven",
        "What a bridge had to write to its quarantine twice is published twice.",
        (
            Patch(
                "app/repair/quarantine.py",
                "        return self._hop(refused) in self._hops\n",
                "        return False\n",
            ),
        ),
        "tests/unit/test_repair.py::test_what_a_bridge_wrote_twice",
    ),
    Mutant(
        "redrive-repeated",
        "A redrive that is run again, because nobody knows how the first one ended, has messages done twice.",
        (
            Patch(
                _WINDOW,
                "        if self.redriven.get(offset, 0) >= number:\n            return False\n",
                "",
            ),
        ),
        f"{_REDRIVEN_TESTS}::test_asked_twice",
        (f"{_DLQ_TESTS}::test_done_once_more",),
    ),
    Mutant(
        "redriven-dies-with-its-holder",
        "A message that was redriven is never done if its consumer ends before it.",
        (
            Patch(
                _WINDOW,
                "            tuple(sorted(each for each in self._again if each not in burying)),",
                "            (),",
            ),
        ),
        f"{_REDRIVEN_TESTS}::test_survives_its_holder",
        (f"{_REDRIVEN_TESTS}::test_each_exactly_as_often_as_asked",),
    ),
    Mutant(
        "redriven-moves-the-watermark",
        "A redriven message that is finished is looked for among those that were fetched: its partition fails.",
        (
            Patch(
                _WINDOW,
                "        if offset not in self._again:\n            self.watermark.finish(offset)",
                "        self.watermark.finish(offset)",
            ),
        ),
        f"{_REDRIVEN_TESTS}::test_takes_its_place",
    ),
    Mutant(
        "redrive-keeps-old-attempts",
        "A redriven message that fails once is a dead letter at once.",
        (
            Patch(
                _WINDOW,
                "        self.attempts.pop(offset, None)\n        self.failures.pop(offset, None)\n        self.redriven.pop",
                "        self.redriven.pop",
            ),
        ),
        f"{_REDRIVEN_TESTS}::test_blocked",
    ),
    Mutant(
        "group-goes-on-after-a-restart",
        "A group that is to wait behind its dead letter does so until its consumer is restarted.",
        (Patch(_WINDOW, "blocked = self.blocked.union(blocking)", "blocked = set[int]()"),),
        f"{_REDRIVEN_TESTS}::test_blocked",
        (f"{_DLQ_TESTS}::test_parked_group",),
    ),
    Mutant(
        "redriven-with-its-hop",
        "A redriven record has the hop that its lane knows already, and is dropped as a duplicate of itself.",
        (Patch(_QUARANTINE, "wire.HEADER_HOP, wire.HEADER_CONFIRMED,", "wire.HEADER_CONFIRMED,"),),
        f"{_REPAIR_TESTS}::test_what_is_left_behind",
        (f"{_QUARANTINE_TESTS}::test_record_as_it_came",),
    ),
    Mutant(
        "redriven-round-and-round",
        "What is refused again and again is published again and again.",
        (Patch(_QUARANTINE, "if refused.redriven >= self._most:", "if refused.redriven < 0:"),),
        f"{_REPAIR_TESTS}::test_what_is_refused",
        (f"{_QUARANTINE_TESTS}::test_what_is_chosen",),
    ),
    Mutant(
        "settled-apart-from-its-copy",
        "A redrive that ends between the copy and what says so publishes the same records once more.",
        (
            Patch(
                _SETTLED,
                'await self._producer.transact([*places, *published], {}, "")',
                'await self._producer.transact(published, {}, "")\n                await self._producer.transact(places, {}, "")',
            ),
        ),
        f"{_QUARANTINE_TESTS}::test_once_whatever_ends_it",
    ),
    Mutant(
        "letters-of-another-topic",
        "After the accepted topic was created again the redrive of an old dead letter repeats a stranger's message.",
        (
            Patch(
                _LETTERS,
                "        if reason:\n                self._leave([each], reason)",
                "        if False:\n                self._leave([each], reason)",
            ),
        ),
        f"{_DLQ_TESTS}::test_what_is_left",
    ),
    Mutant(
        "left-and-called-done",
        "A drop or a redrive that has left something ends as if all were done, and a script goes on.",
        (Patch("app/repair/result.py", "        return 1 if self.left else 0\n", "        return 0\n"),),
        f"{_REPAIR_TESTS}::test_how_it_ends",
        (f"{_QUARANTINE_TESTS}::test_what_is_chosen",),
    ),
    Mutant(
        "a-mistyped-name-looks-done",
        "What is open and not meant is not told: a redrive for a consumer group that there is not looks as if all were done.",
        (
            Patch(
                "app/repair/scanning.py",
                "        if is_open:\n            self.passed.add(refused)\n",
                "        if False:\n            self.passed.add(refused)\n",
            ),
        ),
        f"{_REPAIR_TESTS}::test_a_name_that_is_mistyped",
    ),
)
