"""Bugs in transactions, and in what a lane knows of the hops of bridges."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PATH: Final = "agents/decision/decide.py"
_PATH_ENVELOPES_TESTS: Final = "tests/unit/agents/decision/test_decide_envelopes.py"
_JUDGING: Final = "agents/decision/verdicts.py"
_HOPS: Final = "tables/hops.py"
_HOPS_MODEL_TESTS: Final = "tests/property/test_hops_model.py"
_HOPS_TESTS: Final = "tests/unit/tables/test_hops.py"
_TABLE_HOPS_TESTS: Final = "tests/unit/tables/test_table_hops.py"

MUTANTS: Final = (
    Mutant(
        "first-id-judged",
        "A transaction whose second ID is known passes, and what that ID stood for comes twice.",
        Patch("tables/ring.py", "for each in unit:", "for each in unit[:1]:"),
        "tests/unit/tables/test_ring.py::test_one_known_id_is_enough",
    ),
    Mutant(
        "foreign-id-not-apart",
        "ID 7 of payments makes ID 7 of transfers a duplicate: a silent loss.",
        Patch("agents/decision/envelope_parts.py", "else foreign_id(address, id_)", "else id_"),
        f"{_PATH_ENVELOPES_TESTS}::test_ids_of_other_addresses_are_apart",
    ),
    Mutant(
        "cut-inside",
        "The transaction that would be too much is cut in the middle: the rest of its parts never comes.",
        Patch(
            _PATH,
            "if count and count + len(unit.groups) > BATCH_PARTS_MAX:",
            "if count + len(unit.groups) > BATCH_PARTS_MAX:\n"
            "                unit = unit._replace(\n"
            "                    **{name: getattr(unit, name)[: BATCH_PARTS_MAX - count] for name in unit._fields[:-1]}\n"
            "                )\n"
            "                item.open(unit)\n"
            "            if count < 0:",
        ),
        "tests/unit/agents/decision/test_several_partitions.py::test_cut_before_an_envelope",
    ),
    Mutant(
        "home-by-its-ids-though-keyed",
        "Transactions of one key are judged in many lanes: their order is lost, and resends that differ in IDs do not meet.",
        Patch(_PATH, "groups[number] = records[number].key", "groups[number] = None"),
        f"{_PATH_ENVELOPES_TESTS}::test_home_by_the_key_alone",
    ),
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
        f"{_HOPS_MODEL_TESTS}::test_as_the_rule_says_where_there_is_less_room",
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
        f"{_HOPS_MODEL_TESTS}::test_as_the_rule_says_where_there_is_less_room",
    ),
    Mutant(
        "hops-not-in-the-changelog",
        "A worker on another machine lets everything pass that bridges send again.",
        Patch("tables/table.py", "[*tombstones, *change.slots, *change.hops", "[*tombstones, *change.slots"),
        f"{_TABLE_HOPS_TESTS}::test_restart_and_another_disk",
        also=(f"{_TABLE_HOPS_TESTS}::test_whatever_happens",),
    ),
)
