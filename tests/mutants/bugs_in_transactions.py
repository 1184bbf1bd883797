"""Bugs in transactions: what of an envelope is read, judged, kept, and written where."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_RING: Final = "tables/ring.py"
_UNIT: Final = "agents/unit.py"
_PATH: Final = "agents/path.py"
_EMITTER: Final = "agents/emitter.py"
_ENVELOPE: Final = "agents/envelope.py"
_RING_TESTS: Final = "tests/unit/test_ring_units.py"
_UNIT_TESTS: Final = "tests/unit/test_units.py"
_PATH_TESTS: Final = "tests/unit/test_path_envelopes.py"
_ADDED: Final = "ringfence_kafka/transaction/added.py"

MUTANTS: Final = (
    Mutant(
        "first-id-judged",
        "A transaction whose second ID is known passes, and what that ID stood for comes twice.",
        (
            Patch(
                _RING,
                "            for each in unit:\n                sequence",
                "            for each in unit[:1]:\n                sequence",
            ),
        ),
        f"{_RING_TESTS}::test_one_known_id_is_enough",
    ),
    Mutant(
        "first-id-added",
        "A resend that has only the other IDs of a transaction passes.",
        (Patch(_RING, "for each in dict.fromkeys(unit):", "for each in unit[:1]:"),),
        f"{_RING_TESTS}::test_all_are_added",
    ),
    Mutant(
        "ignored-ids-added",
        "What was new in an ignored transaction is taken for known, though nothing of it was ever accepted.",
        (
            Patch(
                _RING,
                "                continue\n            checked.verdicts.append(Verdict.ACCEPTED)\n",
                "            else:\n                checked.verdicts.append(Verdict.ACCEPTED)\n",
            ),
        ),
        f"{_RING_TESTS}::test_one_known_id_is_enough",
    ),
    Mutant(
        "judged-by-the-moving-head",
        "The first IDs of a transaction push out what its last one would be a duplicate of.",
        (
            Patch(
                _RING,
                "            for each in unit:\n                sequence",
                "            for moved, each in enumerate(unit):\n                sequence",
            ),
            Patch(_RING, "self._live(sequence, head, time,", "self._live(sequence, head + moved, time,"),
        ),
        f"{_RING_TESTS}::test_judged_by_the_head_before_it",
    ),
    Mutant(
        "duplicate-of-itself",
        "A transaction that has one ID on two parts is never accepted.",
        (
            Patch(
                _RING,
                "                sequence = fresh.get(each, stored[each])\n",
                "                sequence = fresh.get(each, stored[each])\n"
                "                fresh.setdefault(each, head)\n",
            ),
        ),
        f"{_RING_TESTS}::test_twice_inside_counts_once",
    ),
    Mutant(
        "own-id-overlooked",
        "Where parts have IDs, that of the envelope is not looked at: a resend with other IDs in it passes.",
        (
            Patch(
                _UNIT,
                "[each for each in (own_id, *ids) if each is not None],",
                "[each for each in ids if each is not None] or [each for each in (own_id,) if each is not None],",
            ),
        ),
        f"{_UNIT_TESTS}::test_own_id_beside_those_of_parts",
    ),
    Mutant(
        "foreign-id-not-apart",
        "ID 7 of payments makes ID 7 of transfers a duplicate: a silent loss.",
        (Patch(_UNIT, "else foreign_id(address, each)", "else each"),),
        f"{_PATH_TESTS}::test_ids_of_other_addresses_are_apart",
    ),
    Mutant(
        "written-though-a-part-is-too-large",
        "All parts but the one that its topic does not take are accepted: the transaction is torn.",
        (Patch(_EMITTER, "        if too_large:\n", "        if too_large and not outcome.units:\n"),),
        f"{_PATH_TESTS}::test_part_too_large_for_its_topic",
    ),
    Mutant(
        "malformed-burns-ids",
        "What went to quarantine is known: the same transaction, written rightly, is dropped.",
        (
            Patch(
                _PATH,
                "            records, sources, ids, groups = refusing.without(gone, records, records, sources, ids, groups)\n",
                "",
            ),
        ),
        f"{_PATH_TESTS}::test_refused_whole",
    ),
    Mutant(
        "partitioner-of-the-own-address",
        "Parts of a group stand in another partition than its messages: it has no order.",
        (
            Patch(
                _EMITTER,
                "else target.home[group]",
                "else Home(target.count, self._address.partitioner)[group]",
            ),
        ),
        f"{_UNIT_TESTS}::test_partitions_of_the_target",
    ),
    Mutant(
        "count-of-the-own-address",
        "The same, where the accepted topics have different counts.",
        (
            Patch(
                _EMITTER,
                "        self.home = Home(self.count, address.partitioner)\n",
                "        self.home = Home(next(iter(outputs.partitions.values())), address.partitioner)\n",
            ),
        ),
        f"{_UNIT_TESTS}::test_partitions_of_the_target",
    ),
    Mutant(
        "group-by-the-own-rules",
        "Parts for an address that groups by a header are grouped by their keys: consumers see another group.",
        (Patch(_UNIT, "reader.groups(those)", "self._readers[self._own].groups(those)"),),
        f"{_PATH_TESTS}::test_parts_as_if_sent_alone",
    ),
    Mutant(
        "ids-by-the-own-header-names",
        "Parts for an address that names its IDs otherwise have none, and resends pass.",
        (Patch(_UNIT, "reader.ids(those)", "self._readers[self._own].ids(those)"),),
        f"{_PATH_TESTS}::test_ids_of_other_addresses_are_apart",
    ),
    Mutant(
        "list-of-addresses-ignored",
        "Whoever may write to one input writes to every accepted topic, with the worker's rights.",
        (
            Patch(
                "ringfence_kafka/config/settings.py",
                "if each.name in address.transaction_addresses)",
                "if each.name != address.name)",
            ),
        ),
        f"{_UNIT_TESTS}::test_addresses_that_are_not_listed",
    ),
    Mutant(
        "forged-part-kept",
        "A plain message is taken for a part of a transaction that does not exist.",
        (Patch(_EMITTER, "wire.HEADER_TRANSACTION, wire.HEADER_PART,", "wire.HEADER_TRANSACTION,"),),
        f"{_PATH_TESTS}::test_forged_headers_of_plain_messages",
    ),
    Mutant(
        "cut-inside",
        "The transaction that would be too much is cut in the middle: the rest of its parts never comes.",
        (
            Patch(
                _PATH,
                "            if count and count + len(unit.groups) > PARTS_MAX:\n                return offset\n",
                "            if count + len(unit.groups) > PARTS_MAX:\n"
                "                unit = units[offset] = unit._replace(\n"
                "                    **{each: getattr(unit, each)[: PARTS_MAX - count] for each in unit._fields[:-1]}\n"
                "                )\n",
            ),
        ),
        f"{_PATH_TESTS}::test_cut",
    ),
    Mutant(
        "home-by-its-ids-though-keyed",
        "Transactions of one key are judged in many lanes: their order is lost, and resends that differ in IDs do not meet.",
        (
            Patch(
                _PATH,
                "            groups[number] = record.key\n"
                "            if record.key is not None or ids[number] is not None:\n",
                "            groups[number] = None\n            if ids[number] is not None:\n",
            ),
        ),
        f"{_PATH_TESTS}::test_home_by_the_key_alone",
    ),
    Mutant(
        "home-of-the-foreign-id-as-stored",
        "A transaction without key is at home where no producer that keys by its ID sends one.",
        (Patch(_UNIT, "of_address(self.ids[0])[1] if", "self.ids[0] if"),),
        f"{_PATH_TESTS}::test_home_without_a_key",
    ),
    Mutant(
        "trailing-text-accepted",
        "Two envelopes in one value are read as the first: the second is silently lost.",
        (Patch(_ENVELOPE, "_DECODER.decode(value.decode())", "_DECODER.raw_decode(value.decode())[0]"),),
        "tests/unit/test_envelope.py::test_malformed",
    ),
    Mutant(
        "unknown-names-accepted",
        "A misspelt name in a part is passed over, and the part goes out without what it said.",
        (Patch(_ENVELOPE, "    if not part.keys() <= _PART:\n", "    if not part.keys():\n"),),
        "tests/unit/test_envelope.py::test_malformed",
    ),
    Mutant(
        "refused-and-sent-all-the-same",
        "Of a transaction in which a partition was refused aiokafka sends the rest, into the one before.",
        (Patch(_ADDED, "            if place not in to_add:\n", "            if False:\n"),),
        "tests/unit/test_added.py::test_refused_in_part",
    ),
    Mutant(
        "sent-before-it-is-added",
        "A partition that the coordinator has not confirmed yet is written to.",
        (Patch(_ADDED, "{*muted_partitions, *to_add}", "{*muted_partitions}"),),
        "tests/unit/test_added.py::test_added_one_by_one",
    ),
)
