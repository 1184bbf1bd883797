"""Bugs in who may judge by which rules."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_OPENING: Final = "agents/opening.py"
_STATEMENTS: Final = "agents/statements.py"
_TESTS: Final = "tests/integration/test_lane_rules.py"
_UNIT: Final = "tests/unit/test_lane_rules.py"

MUTANTS: Final = (
    Mutant(
        "one-position-for-a-chained-topic",
        "What the second address had not consumed at the end of a run is judged by no run.",
        (
            Patch(
                "reconcile/cluster/survey.py",
                "key, ends = chained_key(topic), self.stable",
                "ends = self.stable",
            ),
        ),
        "tests/reconcile/test_chained.py::test_each_address_of_a_chain_is_judged",
    ),
    Mutant(
        "a-chain-forgets-the-hops",
        "A message goes round for ever over a chain and two bridges.",
        (Patch("agents/emitter.py", "OURS_IN_A_CHAIN if chained else OURS", "OURS"),),
        "tests/integration/test_chained.py::test_a_chain",
    ),
    Mutant(
        "other-rules-open-the-lane",
        "A worker with an older file judges by it, and different messages are dropped as duplicates.",
        (Patch(_OPENING, "            await self._require_rules(self.table.meta)\n", ""),),
        f"{_TESTS}::test_a_record_without_rules_gets_them",
    ),
    Mutant(
        "one-worker-shrinks-rings",
        "A ring takes over the limits of the file of whoever opens it, whatever other live workers state.",
        (Patch(_OPENING, "limits = limits if unlike else self._own_limits", "limits = self._own_limits"),),
        f"{_TESTS}::test_a_size_changes_when_all_live_workers_agree",
    ),
    Mutant(
        "limits-never-agreed",
        "A rolling restart with a changed file leaves rings at their old size until somebody restarts a worker again.",
        (Patch("agents/lanes.py", "                lane.note_agreement()\n", "                pass\n"),),
        f"{_TESTS}::test_a_size_changes_when_all_live_workers_agree",
    ),
    Mutant(
        "silence-is-agreement",
        "Rings shrink while the group rebalances or has members of an earlier version.",
        (Patch(_STATEMENTS, "    if silent:\n", "    if silent and not found and not limits:\n"),),
        f"{_UNIT}::test_who_says_what",
    ),
    Mutant(
        "adopted-ids-stay",
        "After a change of where IDs come from an old ID makes a new message a duplicate, and it is lost.",
        (
            Patch(
                "app/verbs/ring_adopt.py",
                "floor=meta.head if forgotten else meta.floor",
                "floor=meta.floor",
            ),
        ),
        f"{_TESTS}::test_a_rule_changes_on_purpose",
    ),
    Mutant(
        "bridges-of-two-filters",
        "Processes of one bridge forward by different filters, each its own partitions.",
        (
            Patch(
                "agents/bridge/bridge.py",
                "            await unless(self._stopping, self._require_terms())\n",
                "",
            ),
        ),
        "tests/integration/test_bridge.py::test_processes_with_another_filter[False]",
    ),
    Mutant(
        "newcomers-of-two-terms",
        "Members that looked at the same moment share partitions though their terms differ.",
        (
            Patch(
                "ringfence_client/assignor.py",
                "for said, refusal in ((apps, one_app.refusal), (stated, terms.refusal)):",
                "for said, refusal in ((apps, one_app.refusal),):",
            ),
        ),
        "tests/unit/test_terms.py::test_holders_continue",
    ),
    Mutant(
        "run-believes-its-own-file",
        "The reconciliation run judges by a file that no lane goes by, and is sure of it.",
        (
            Patch(
                "reconcile/night/rules.py",
                "        found += _doubts_of_lanes(number, each, cuts[each.name], addresses)\n",
                "",
            ),
        ),
        "tests/unit/test_reconcile_rules.py::test_lanes_that_go_by_other_rules_than_this_file",
    ),
)
