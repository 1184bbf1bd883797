"""Bugs in what a lane knows of the hops of bridges."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_JUDGING: Final = "agents/decision/verdicts.py"
_HOPS: Final = "tables/hops.py"
_HOPS_MODEL_TESTS: Final = "tests/property/test_hops_model.py"
_HOPS_TESTS: Final = "tests/unit/tables/test_hops.py"
_PATH_HOPS_TESTS: Final = "tests/unit/agents/decision/test_decide_hops.py"
_TABLE_HOPS_TESTS: Final = "tests/unit/tables/test_table_hops.py"

MUTANTS: Final = (
    Mutant(
        "floor-over-all-ways",
        "What is still on its detour when a later record confirms it is dropped: a silent loss.",
        Patch(_HOPS, "offset < held.floor", "offset < max(each.floor for each in routes.values())"),
        f"{_HOPS_TESTS}::test_floor_of_each_way",
        also=(f"{_HOPS_MODEL_TESTS}::test_each_once_in_order",),
    ),
    Mutant(
        "hops-noted-before-the-commit",
        "A batch whose transaction failed is a duplicate of itself: a silent loss.",
        Patch(_HOPS, "former.copy()", "former"),
        f"{_HOPS_TESTS}::test_check_changes_nothing",
        also=(f"{_HOPS_MODEL_TESTS}::test_each_once_in_order",),
    ),
    Mutant(
        "hops-noted-only-if-accepted",
        "A record whose ID was known passes when it is sent again after that ID was forgotten.",
        Patch(
            "agents/decision/decide.py",
            "outcome = Outcome(checked,",
            "if Verdict.DUPLICATE in checked.verdicts:\n"
            "            judged = judged._replace(changed={})\n"
            "        outcome = Outcome(checked,",
        ),
        f"{_PATH_HOPS_TESTS}::test_noted_whatever_the_verdict",
    ),
    Mutant(
        "known-hop-passes-with-an-id",
        "What a bridge sends again passes where the ring has forgotten its ID.",
        (
            Patch(
                "agents/decision/item.py",
                "if self.resent or not self.checks_ids:",
                "if not self.checks_ids or (self.resent and self.id is None):",
            ),
            Patch(_JUDGING, "if item.resent:", "if item.resent and item.id is None:"),
        ),
        f"{_PATH_HOPS_TESTS}::test_known_hop_with_a_new_id",
    ),
    Mutant(
        "hops-not-in-the-changelog",
        "A worker on another machine lets everything pass that bridges send again.",
        Patch("tables/table.py", "[*tombstones, *change.slots, *change.hops", "[*tombstones, *change.slots"),
        f"{_TABLE_HOPS_TESTS}::test_restart_and_another_disk",
        also=(f"{_TABLE_HOPS_TESTS}::test_whatever_happens",),
    ),
)
