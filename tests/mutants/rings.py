"""Bugs in rings: their IDs, their RocksDB, their changelog."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_RESTORE: Final = "tables/restore.py"
_RING: Final = "tables/ring.py"
_STORE: Final = "tables/rocksdb/store.py"
_RESTORE_TESTS: Final = "tests/unit/tables/test_restore.py"
_RING_TESTS: Final = "tests/unit/tables/test_ring.py"
_STORE_TESTS: Final = "tests/unit/tables/rocksdb/test_store.py"

MUTANTS: Final = (
    Mutant(
        "conflict-unseen",
        "A known ID with another value passes for a resend, and its message is lost without a trace.",
        Patch("agents/decision/verdicts.py", "if theirs and theirs != digest:", "if theirs < 0:"),
        "tests/unit/agents/decision/test_conflicts.py::test_another_value_is_a_conflict",
    ),
    Mutant(
        "second-value-forgotten",
        "The second value of an ID is known only while the slot of the first one is there.",
        Patch(
            "agents/decision/verdicts.py",
            "            if original is None:\n                original = live(variant)\n",
            "",
        ),
        "tests/unit/agents/decision/test_conflicts.py::test_each_value_is_accepted_once",
    ),
    Mutant(
        "eviction-too-early",
        "The ring keeps one ID fewer than it promises: the oldest is accepted again.",
        Patch(_RING, "and sequence >= head - capacity", "and sequence > head - capacity"),
        f"{_RING_TESTS}::test_exactly_n_newer",
    ),
    Mutant(
        "floor-ignored",
        "What was cleared, or evicted while the ring was smaller, is known again.",
        Patch(_RING, "                and sequence >= floor\n", ""),
        f"{_RING_TESTS}::test_below_the_floor_is_dead",
    ),
    Mutant(
        "check-remembers",
        "An ID is known as soon as it was asked for: the kept batch is a duplicate of itself.",
        Patch(
            _RING,
            "return Checked(verdicts, originals, self.head, new_ids, new_times)",
            "self.index.add(Checked([], [], self.head, new_ids, new_times), self.low)\n"
            "        return Checked(verdicts, originals, self.head, new_ids, new_times)",
        ),
        f"{_RING_TESTS}::test_check_changes_nothing",
    ),
    Mutant(
        "age-off-by-one",
        "An ID exactly as old as the limit no longer counts.",
        Patch(_RING, ".max_age_ms and age > self.max_age_ms:", ".max_age_ms and age >= self.max_age_ms:"),
        f"{_RING_TESTS}::test_age",
    ),
    Mutant(
        "young-ids-evicted",
        "An ID that is younger than id_min_age goes with the next ones beyond id_cache_size.",
        Patch(_RING, "head - promise.size and age > promise.min_age_ms", "head - promise.size and age > 0"),
        "tests/unit/tables/test_promise.py::test_a_young_id_outlives_the_size",
        also=("tests/property/test_ring_model.py::test_ring_is_the_last_n",),
    ),
    Mutant(
        "shrunk-without-a-floor",
        "What a smaller ring evicted comes back when the ring grows again.",
        Patch("tables/resize.py", "> meta.capacity or (capacity < meta.capacity and not promised):", "< 0:"),
        "tests/unit/tables/test_resize.py::test_shrunk_and_grown_again",
    ),
    Mutant(
        "epoch-ignored",
        "What an earlier opening still wants to write lands in the RocksDB of the present one.",
        Patch(_STORE, "if epoch != self.epoch:", "if epoch > self.epoch:"),
        f"{_STORE_TESTS}::test_stale_epoch",
    ),
    Mutant(
        "rocksdb-written-in-pieces",
        "A crash in the middle of a write leaves slots whose changelog position RocksDB does not know.",
        Patch(_STORE, "fill(Writes(batch))", "fill(Writes(self._db))"),
        f"{_STORE_TESTS}::test_write_is_all_or_nothing",
    ),
    Mutant(
        "trusted-beyond-the-end",
        "RocksDB that reflects a lost tail of the changelog is believed.",
        Patch(_RESTORE, "if state.position > bounds.high_watermark:", "if state.position < 0:"),
        f"{_RESTORE_TESTS}::test_untrusted",
    ),
    Mutant(
        "record-before-the-position-not-compared",
        "A changelog that lost its tail and grew again is taken for the one that RocksDB knows.",
        Patch(
            _RESTORE, "if not self._verified:\n                self._verify(record)", "self._verified = True"
        ),
        f"{_RESTORE_TESTS}::test_tail_lost_and_regrown",
    ),
    Mutant(
        "incarnation-ignored",
        "RocksDB is held against a changelog that was deleted and created again, and only its bytes give it away.",
        Patch(_RESTORE, "if meta.incarnation != known.incarnation:", "if not meta.incarnation:"),
        f"{_RESTORE_TESTS}::test_wrong_incarnation",
    ),
    Mutant(
        "deleted-changelog-unnoticed",
        "The lane goes on beside a changelog that lacks its IDs, and the next worker accepts all of them again.",
        Patch("agents/lane/lane.py", "not in {None, self._opened.topic_ids[topic]}", "is None"),
        "tests/integration/test_deleted_topics.py::test_beneath_a_running_lane",
    ),
    Mutant(
        "chunk-removed-too-early",
        "A restart forgets IDs that the ring promises to keep.",
        Patch("tables/rocksdb/chunks.py", "(self._keys[0]) < low", "(self._keys[0]) <= low + 1"),
        "tests/unit/tables/rocksdb/test_chunks.py::test_dead_chunks_are_removed",
    ),
    Mutant(
        "clear-without-fence",
        "The running worker overwrites the new floor with its own, and what was cleared is known again.",
        Patch(
            "app/commands/rings/changelog_writer.py",
            "wire_names.transactional_id(settings.app.id, address.name, number),",
            'wire_names.transactional_id(settings.app.id, address.name, number) + "-clear",',
        ),
        "tests/integration/test_rings.py::test_clear_is_honoured_by_a_running_worker",
    ),
    Mutant(
        "adopted-ids-stay",
        "After a change of where IDs come from an old ID makes a new message a duplicate, and it is lost.",
        Patch("app/commands/rings/adopt.py", "floor=meta.head if forgotten else meta.", "floor=meta."),
        "tests/integration/test_lane_rules.py::test_a_rule_changes_on_purpose",
    ),
)
