"""Bugs in how a worker of many lanes opens them, and shares connections between them."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PLACES: Final = "agents/places.py"
_PLACES_TESTS: Final = "tests/unit/test_places.py"

MUTANTS: Final = (
    Mutant(
        "place-held-for-ever",
        "Sixteen lanes whose broker does not answer keep all others from opening.",
        (Patch(_PLACES, "call_later(self._held_max_s, overstay)", "call_later(1e9, overstay)"),),
        f"{_PLACES_TESTS}::test_who_was_stuck_waits_elsewhere",
    ),
    Mutant(
        "place-given-up-twice",
        "Each lane that was stuck adds a place, until all open at once.",
        (Patch(_PLACES, "            if held:\n", "            if held or who in self._slow:\n"),),
        f"{_PLACES_TESTS}::test_one_that_is_stuck_holds_up_nobody",
    ),
    Mutant(
        "slow-for-ever",
        "After one outage of a broker all lanes open in the places of those that are stuck.",
        (Patch(_PLACES, "                self._slow.discard(who)\n", ""),),
        f"{_PLACES_TESTS}::test_who_is_done_in_time_is_one_of_all_again",
    ),
    Mutant(
        "stuck-among-the-others",
        "Lanes that are stuck again and again take the places of those that are not.",
        (Patch(_PLACES, "self._free_for_slow if who in self._slow else self._free", "self._free"),),
        f"{_PLACES_TESTS}::test_who_was_stuck_waits_elsewhere",
    ),
)
