"""Bugs in what keeps lanes going while workers come and go."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_RESIZE: Final = "tables/resize.py"
_TABLE: Final = "tables/table.py"
_REJOINING: Final = "ringfence_kafka/rejoining.py"
_ASSIGNOR: Final = "app/worker/assignor.py"
_SHARING: Final = "app/worker/sharing.py"
_STATIC: Final = "ringfence_kafka/static.py"
_MEMORY: Final = "tests/unit/test_restore.py::test_where_memory_does_not_do"

MUTANTS: Final = (
    Mutant(
        "memory-followed-over-a-floor",
        "A lane that comes back still knows what was forgotten by order meanwhile: new messages are dropped.",
        (
            Patch(
                _RESIZE,
                "(meta.capacity, meta.floor, meta.persistent) != (known.capacity, known.floor, known.persistent)",
                "(meta.capacity, meta.persistent) != (known.capacity, known.persistent)",
            ),
        ),
        f"{_MEMORY}[_cleared]",
    ),
    Mutant(
        "memory-followed-over-a-gap",
        "More came than a ring holds, and the first of it is gone: IDs get the sequences of others.",
        (
            Patch(
                _RESIZE,
                "    if len(newer) != meta.head - ring.head or not all(map(newer.__contains__, range(ring.head, meta.head))):\n"
                "        return False\n",
                "    newer = dict(enumerate(newer.values(), meta.head - len(newer)))\n"
                "    ring.head = meta.head - len(newer)\n",
            ),
        ),
        f"{_MEMORY}[_overrun]",
    ),
    Mutant(
        "memory-always-whole",
        "RocksDB was closed, and read anew it is behind: what memory has beyond it counts as known.",
        (
            Patch(
                _TABLE,
                "            self._whole\n            and self._resident",
                "            self._resident",
            ),
        ),
        f"{_MEMORY}[_closed]",
    ),
    Mutant(
        "stands-still-when-it-is-announced",
        "All lanes stand still until the slowest member has asked to join again, or a dead one's session ends.",
        (Patch(_REJOINING, "            held.append(previous)\n", "            await prepare(previous)\n"),),
        "tests/unit/test_rejoining.py::test_goes_on_until_the_group_shares_out",
    ),
    Mutant(
        "goes-on-after-it-was-thrown-out",
        "Whoever is no member any more works on lanes that others have, until it is fenced.",
        (
            Patch(
                _REJOINING,
                " and response.error_code not in _STILL_A_MEMBER",
                " and response.error_code == 0",
            ),
        ),
        "tests/unit/test_rejoining.py::test_no_member_any_more",
    ),
    Mutant(
        "heartbeats-without-the-name",
        "Two workers of one name take each other for ended sessions, and throw each other out for ever.",
        (
            Patch(
                _STATIC,
                "        if isinstance(request, HeartbeatRequest):\n",
                "        if isinstance(request, str):\n",
            ),
        ),
        "tests/unit/test_static.py::test_heartbeats_have_the_name",
    ),
    Mutant(
        "old-assignment-for-new-addresses",
        "A static member comes back with an address more, and nobody is given its lanes.",
        (Patch(_STATIC, "set(each.metadata.subscription) == set(topics)", "True"),),
        "tests/unit/test_static.py::test_a_predecessor_with_other_topics_leaves",
        also=("tests/integration/test_worker.py::test_static_member_with_other_addresses",),
    ),
    Mutant(
        "unfinished-store-believed",
        "What was written before anything said whose it is counts, of whatever changelog: messages are dropped as duplicates.",
        (Patch(_TABLE, "        if store.unfinished:\n", "        if store.broken:\n"),),
        "tests/unit/test_restore.py::test_a_compacted_changelog_is_written_as_it_comes",
    ),
    Mutant(
        "compacted-changelog-piles-up",
        "All of a ring is written to RocksDB at once, while all lanes wait.",
        (
            Patch(
                "tables/restore.py",
                "(self.gathering.pending if self.gathering else 0) >= most:\n",
                "(self.gathering.pending if self.gathering else 0) >= most and self.meta:\n",
            ),
        ),
        "tests/unit/test_restore.py::test_a_compacted_changelog_is_written_as_it_comes",
    ),
    Mutant(
        "shared-by-dice",
        "Member IDs decide, which nobody knows beforehand: a newcomer restores what it does not get.",
        (Patch(_ASSIGNOR, "key=lambda each: (joined[each][0], each)", "key=lambda each: each"),),
        "tests/unit/test_warming.py::test_what_is_foreseen_is_what_the_group_then_gives",
    ),
    Mutant(
        "foreseen-from-what-was-before",
        "What members said when they joined is one assignment old.",
        (
            Patch(
                _ASSIGNOR,
                "url = self._get_client_metadata(each.metadata).url\n",
                "url = (said := self._get_client_metadata(each.metadata)).url\n",
            ),
            Patch(
                _ASSIGNOR,
                "(url, each.metadata.subscription, each.assigned)",
                "(url, each.metadata.subscription, said.assignment.active_tps)",
            ),
        ),
        "tests/unit/test_warming.py::test_what_is_foreseen_is_what_the_group_then_gives",
    ),
    Mutant(
        "addresses-of-few-partitions-on-one-worker",
        "Nobody counts all addresses together: the first worker gets whatever has one partition.",
        (
            Patch(
                _SHARING,
                "min(owned, key=lambda each: (len(owned[each]), self._totals[each], self._places[each]))",
                "min(owned, key=lambda each: (len(owned[each]), self._places[each]))",
            ),
            Patch(
                _SHARING,
                "        while found := self._uneven():\n            self._move(*found)\n",
                "        self._uneven()\n",
            ),
        ),
        "tests/unit/test_sharing.py::test_addresses_of_few_partitions_are_spread",
    ),
)
