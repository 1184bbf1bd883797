"""Bugs in what a lane knows of bridges: what is known, what is believed, what is written down."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_HOPS: Final = "tables/hops.py"
_TABLE: Final = "tables/table.py"
_JUDGING: Final = "agents/judging.py"
_REFUSING: Final = "agents/refusing.py"
_CROSSING: Final = "agents/crossing.py"
_EMITTER: Final = "agents/emitter.py"
_HOPS_TESTS: Final = "tests/unit/test_hops.py"
_TABLE_TESTS: Final = "tests/unit/test_table_hops.py"
_PATH_TESTS: Final = "tests/unit/test_path_hops.py"
_MODEL: Final = "tests/property/test_hops_model.py"

MUTANTS: Final = (
    Mutant(
        "floor-over-all-ways",
        "What is still on its detour when a later record confirms it is dropped: a silent loss.",
        (
            Patch(
                _HOPS,
                "offset < held.floor\n                or",
                "offset < max(each.floor for each in ways.values())\n                or",
            ),
        ),
        f"{_HOPS_TESTS}::test_floor_of_each_way",
        (f"{_MODEL}::test_each_once_in_order",),
    ),
    Mutant(
        "floor-not-raised",
        "A batch that comes late, when what it brings has long been forgotten, passes.",
        (
            Patch(
                _HOPS,
                "if confirmed > self.floor:",
                "if confirmed < 0:",
            ),
        ),
        f"{_HOPS_TESTS}::test_below_the_floor",
        (f"{_MODEL}::test_as_the_rule_says_where_there_is_less_room",),
    ),
    Mutant(
        "floor-falls",
        "A zombie's batch takes back what was confirmed, and the next one passes.",
        (Patch(_HOPS, "if confirmed > self.floor:", "if confirmed != self.floor:"),),
        f"{_HOPS_TESTS}::test_floor_never_falls",
    ),
    Mutant(
        "hops-of-one-batch-forgotten",
        "A record and its resend in one batch both pass.",
        (
            Patch(_HOPS, "                or offset in held\n", ""),
            Patch(
                _HOPS,
                "len(ways) > 1 and any(offset in each for each in ways.values())",
                "any(offset in each for each in self._sources.get(way.source, {}).values())",
            ),
        ),
        f"{_HOPS_TESTS}::test_twice_in_one_batch",
        (f"{_MODEL}::test_each_once_in_order",),
    ),
    Mutant(
        "hops-noted-before-the-commit",
        "A batch whose transaction failed is a duplicate of itself: a silent loss.",
        (Patch(_HOPS, "former.copy()", "former"),),
        f"{_HOPS_TESTS}::test_check_changes_nothing",
        (f"{_MODEL}::test_each_once_in_order",),
    ),
    Mutant(
        "hops-without-end",
        "What nothing confirms fills the memory, and its record no longer fits into the changelog: the lane stands still.",
        (Patch(_HOPS, "            self._begin = len(above) - capacity\n", "            pass\n"),),
        f"{_HOPS_TESTS}::test_lowest_are_forgotten",
        (f"{_MODEL}::test_as_the_rule_says_where_there_is_less_room",),
    ),
    Mutant(
        "size-0-drops-hops",
        "With detection off records of bridges are dropped all the same.",
        (Patch(_HOPS, "        if not self.capacity:\n", "        if self.capacity < 0:\n"),),
        f"{_HOPS_TESTS}::test_off",
    ),
    Mutant(
        "hops-noted-only-if-accepted",
        "A record whose ID was known passes when it is sent again after that ID was forgotten.",
        (
            Patch(
                "agents/path.py",
                "        return Outcome(\n            checked=checked,\n",
                "        if Verdict.DUPLICATE in checked.verdicts:\n"
                "            judged = judged._replace(changed={})\n"
                "        return Outcome(\n            checked=checked,\n",
            ),
        ),
        f"{_PATH_TESTS}::test_noted_whatever_the_verdict",
    ),
    Mutant(
        "known-hop-passes-with-an-id",
        "What a bridge sends again passes where the ring has forgotten its ID.",
        (
            Patch(
                _JUDGING,
                "if offset in resent or crossings[offset].ids_ignored:",
                "if crossings[offset].ids_ignored or (offset in resent and ids[number] is None):",
            ),
            Patch(
                _JUDGING,
                "            checked.verdicts[number] = Verdict.DUPLICATE\n",
                "            if ids[number] is None:\n                checked.verdicts[number] = Verdict.DUPLICATE\n",
            ),
        ),
        f"{_PATH_TESTS}::test_known_hop_with_a_new_id",
    ),
    Mutant(
        "refused-hops-not-noted",
        "What a lane refused is refused again when its bridge sends it again, or accepted beside its open quarantine, and redriven besides.",
        (
            Patch(
                _REFUSING,
                "offset: reason for offset, reason in refused.items() if offset not in noted",
                "**refused",
            ),
        ),
        f"{_PATH_TESTS}::test_refused_is_noted",
        (f"{_PATH_TESTS}::test_refused_again",),
    ),
    Mutant(
        "refused-hops-noted-twice",
        "What a lane refused is in quarantine as often as its bridge sends it.",
        (Patch(_REFUSING, "if offset not in resent or reason.startswith(RESENT)", "if reason"),),
        f"{_PATH_TESTS}::test_refused_again",
    ),
    Mutant(
        "refused-hops-forwarded",
        "What does not fit the way to its home is put there again in every attempt: its lane stands still.",
        (
            Patch(
                "agents/path.py",
                "forwarded = [each for each in away if each[1].offset not in refused]",
                "forwarded = away",
            ),
        ),
        f"{_PATH_TESTS}::test_refused_away_from_home",
    ),
    Mutant(
        "known-hops-refused-for-their-parts",
        "A transaction that a bridge sends again goes to quarantine again, and again in every attempt: its lane stands still.",
        (Patch(_EMITTER, "if unit is None or record.offset in outcome.resent:", "if unit is None:"),),
        f"{_PATH_TESTS}::test_refused_for_a_part",
    ),
    Mutant(
        "ignored-ids-looked-at",
        "A cluster connection drops what another cluster accepted, for IDs that mean nothing here.",
        (Patch(_JUDGING, "if offset in resent or crossings[offset].ids_ignored:", "if offset in resent:"),),
        f"{_PATH_TESTS}::test_ids_are_ignored",
    ),
    Mutant(
        "parts-of-a-known-hop-judged",
        "A transaction that a bridge sends again adds the IDs of its parts.",
        (Patch(_JUDGING, "unit._replace(ids=())", "unit"),),
        f"{_PATH_TESTS}::test_envelope_is_one_hop",
    ),
    Mutant(
        "way-of-the-lane",
        "What was forwarded is dropped for what came directly has confirmed it: a silent loss.",
        (Patch(_CROSSING, 'int(place.rpartition(b"/")[2])', "0"),),
        f"{_PATH_TESTS}::test_way_of_what_was_forwarded",
        (f"{_MODEL}::test_each_once_in_order",),
    ),
    Mutant(
        "home-by-an-ignored-id",
        "Bridges put what has no group where its hop is at home, and the lane forwards it: three quarters take a detour.",
        (Patch(_CROSSING, "if found[number] is None or crossing.ids_ignored:", "if found[number] is None:"),),
        f"{_PATH_TESTS}::test_home_by_the_hop",
    ),
    Mutant(
        "home-without-the-hop",
        "A record without group and ID is judged where it arrives: its resend, in another partition, passes.",
        (
            Patch(
                _CROSSING, "            found[number] = crossing.lead\n", "            found[number] = None\n"
            ),
        ),
        f"{_PATH_TESTS}::test_home_by_the_hop",
    ),
    Mutant(
        "malformed-confirmation-believed",
        "Who claims that everything is confirmed has everything of that bridge dropped.",
        (Patch(_CROSSING, "    if confirmed > offset:\n", "    if confirmed < 0:\n"),),
        f"{_PATH_TESTS}::test_malformed",
    ),
    Mutant(
        "malformed-hop-passes",
        "A record that a broken bridge wrote passes unprotected, as often as it is sent.",
        (
            Patch(
                _CROSSING,
                "            refused[record.offset] = str(error)\n",
                "            found[record.offset] = Crossing(hop.Hop(hop.Source('', '', 0), 0), b'', 0, ids_ignored=False, kept=())\n",
            ),
        ),
        f"{_PATH_TESTS}::test_malformed",
    ),
    Mutant(
        "hop-headers-not-stripped",
        "The next bridge finds another one's hop on what it forwards, and consumers see headers that mean nothing to them.",
        (
            Patch(
                _EMITTER,
                "wire.HEADER_HOP, wire.HEADER_CONFIRMED, wire.HEADER_USER_IDS, wire.HEADER_HOPS,",
                "wire.HEADER_HOPS,",
            ),
        ),
        f"{_PATH_TESTS}::test_accepted_without_hops",
    ),
    Mutant(
        "members-of-anybody-kept",
        "A producer that sets _RF_HOPS keeps its messages from other clusters.",
        (Patch(_EMITTER, "wire.HEADER_USER_IDS, wire.HEADER_HOPS,", "wire.HEADER_USER_IDS,"),),
        f"{_PATH_TESTS}::test_forged_members_go",
    ),
    Mutant(
        "members-lost",
        "A message goes round between clusters for ever.",
        (
            Patch(
                _EMITTER,
                "                headers += crossings[record.offset].kept\n",
                "                pass\n",
            ),
        ),
        f"{_PATH_TESTS}::test_accepted_without_hops",
    ),
    Mutant(
        "hops-not-in-the-changelog",
        "A worker on another machine lets everything pass that bridges send again.",
        (Patch(_TABLE, "[*tombstones, *change.slots, *change.hops]", "[*tombstones, *change.slots]"),),
        f"{_TABLE_TESTS}::test_restart_and_another_disk",
        (f"{_TABLE_TESTS}::test_whatever_happens",),
    ),
    Mutant(
        "hops-not-on-disk",
        "After a restart everything passes that was committed before RocksDB's position.",
        (Patch(_TABLE, "            writes.put_hops(change.hops)\n", ""),),
        f"{_TABLE_TESTS}::test_restart_and_another_disk",
        (f"{_TABLE_TESTS}::test_whatever_happens",),
    ),
    Mutant(
        "hops-cleared-not-on-disk",
        "What `rings clear` made a lane forget is back after a restart.",
        (Patch("tables/restore.py", "                writes.delete_hops(key)\n", "                pass\n"),),
        f"{_TABLE_TESTS}::test_cleared",
    ),
    Mutant(
        "hops-in-memory-only-kept",
        "Without persist_id_cache an old record of the changelog decides, which nobody renews.",
        (Patch(_TABLE, "restore.hops.items() if self._options.persistent else ()", "restore.hops.items()"),),
        f"{_TABLE_TESTS}::test_in_memory_only",
    ),
    Mutant(
        "first-hops-record-wins",
        "A lane that is opened elsewhere knows what it knew at first.",
        (
            Patch(
                "tables/restore.py",
                "            self.hops[key] = value\n",
                "            self.hops.setdefault(key, value)\n",
            ),
        ),
        f"{_TABLE_TESTS}::test_whatever_happens",
    ),
)
