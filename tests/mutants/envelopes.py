"""Bugs in transactions: what of an envelope is decided, kept and written."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PATH: Final = "agents/decision/decide.py"
_PATH_ENVELOPES_TESTS: Final = "tests/unit/agents/decision/test_decide_envelopes.py"

MUTANTS: Final = (
    Mutant(
        "first-id-judged",
        "A transaction whose second ID is known passes, and what that ID stood for comes twice.",
        Patch("tables/ring.py", "for each in unit:", "for each in unit[:1]:"),
        "tests/unit/tables/test_ring_units.py::test_one_known_id_is_enough",
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
        f"{_PATH_ENVELOPES_TESTS}::test_cut",
    ),
    Mutant(
        "home-by-its-ids-though-keyed",
        "Transactions of one key are judged in many lanes: their order is lost, and resends that differ in IDs do not meet.",
        Patch(_PATH, "groups[number] = records[number].key", "groups[number] = None"),
        f"{_PATH_ENVELOPES_TESTS}::test_home_by_the_key_alone",
    ),
)
