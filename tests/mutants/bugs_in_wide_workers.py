"""Bugs in how a worker of many lanes opens them, and shares connections between them."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PLACES: Final = "agents/places.py"
_LAGS_TESTS: Final = "tests/unit/test_lags.py"
_LANES_TESTS: Final = "tests/integration/test_many_lanes.py"
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
    Mutant(
        "each-lane-has-its-own-client",
        "A thousand lanes need three thousand sockets, and as many tasks that ask for the same metadata.",
        (Patch("agents/lanes.py", "            clients=self._clients,\n", ""),),
        f"{_LANES_TESTS}::test_one_fails_and_others_do_not_notice",
    ),
    Mutant(
        "each-client-asks-for-metadata",
        "Sixty-four clients ask for the partitions of all topics, each for itself.",
        (
            Patch(
                "ringfence_kafka/clients.py",
                "asker = self._clients[0] if self._clients else None",
                "asker = None",
            ),
        ),
        f"{_LANES_TESTS}::test_lanes_of_a_small_worker_have_a_client_each",
    ),
    Mutant(
        "a-share-ends-its-client",
        "A lane that fails takes the connections of the others with it.",
        (
            Patch(
                "ringfence_kafka/clients.py",
                "            self._client.shares -= 1\n",
                "            self._client.shares -= 1\n            await self._client.close()\n",
            ),
        ),
        "tests/integration/test_shared_clients.py::test_one_fails_and_others_go_on",
    ),
    Mutant(
        "idle-lanes-are-never-doubted",
        "A cluster that lost what an idle lane had processed is not noticed until new messages stand at old offsets.",
        (
            Patch(
                "agents/lags.py",
                "doubtful = [each for each in idle if not each.fits(seen.ends, seen.committed)]",
                "doubtful = []",
            ),
        ),
        f"{_LAGS_TESTS}::test_what_went_back_is_looked_at",
    ),
    Mutant(
        "no-answer-is-a-good-one",
        "Of an idle lane whose topic is gone nothing is said.",
        (
            Patch(
                "agents/cursor.py",
                "        if place not in ends or place not in committed:\n            return False\n",
                "        if place not in ends or place not in committed:\n            return True\n",
            ),
        ),
        f"{_LAGS_TESTS}::test_what_nobody_tells_is_looked_at",
    ),
    Mutant(
        "a-silent-broker-is-asked-for-ever",
        "One partition without a leader keeps the lags of all lanes from being known.",
        (
            Patch(
                "ringfence_kafka/offsets.py",
                "            async with asyncio.timeout(limit_s):\n",
                "            async with asyncio.timeout(None):\n",
            ),
        ),
        "tests/unit/test_offsets.py::test_a_leader_that_is_away_has_no_answer",
    ),
    Mutant(
        "one-silent-broker-silences-all",
        "What the other brokers have answered is forgotten when one has not in time.",
        (
            Patch(
                "ringfence_kafka/offsets.py",
                "errors = await self._request_all(left, which, found)\n",
                "errors = await self._request_all(left, which, noted := {})\n                    found |= noted\n",
            ),
        ),
        "tests/unit/test_offsets.py::test_a_silent_broker_takes_no_other_answer_away",
    ),
    Mutant(
        "no-offsets-no-lag",
        "While the group's coordinator is away open lanes have no lag, and no alert of one that stands still.",
        (
            Patch(
                "agents/lags.py",
                "    if lane is not None and lane.cursors:\n",
                "    if lane is not None and lane.cursors and place in seen.committed:\n",
            ),
        ),
        "tests/unit/test_lags.py::test_open_lanes_have_a_lag_without_a_coordinator",
    ),
    Mutant(
        "rebuilt-while-the-error-is-handled",
        "What was being read of a damaged RocksDB holds its lock when it is made anew: in use by another process, it says.",
        (
            Patch("tables/gathering.py", "            slots.close()", "            pass"),
            Patch("tables/gathering.py", "                chunks_there.close()\n", "                pass\n"),
            Patch(
                "tables/table.py",
                "            in_python = isinstance(error, IrregularError)\n",
                "            in_python = isinstance(error, IrregularError)\n"
                "            self.close()\n"
                "            self._store = Store.create_afresh(self._path, indexed=not self._resident)\n",
            ),
        ),
        "tests/unit/test_restore.py::test_a_chunk_that_cannot_be_read_is_rebuilt_at_once",
        native=True,
    ),
    Mutant(
        "long-fetches-after-a-seek",
        "What a lane seeks after a failure comes seconds later.",
        (
            Patch(
                "app/worker/pace.py",
                "        self._read_at = self._clock()\n\n    def asked_at",
                "        pass\n\n    def asked_at",
            ),
        ),
        "tests/unit/test_pace.py::test_where_nothing_comes_for_long_they_last_as_many_partitions_cost",
    ),
    Mutant(
        "empty-store-over-a-full-one",
        "Each start forgets what is on the disk, and restores all rings from their changelogs.",
        (Patch("tables/empty_store.py", "        if any(folder.iterdir()):\n            return\n", ""),),
        "tests/unit/test_empty_store.py::test_what_is_there_stays",
    ),
)
