"""Bugs in the state: ring, index, RocksDB, changelog, restore, changes of size."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_RING: Final = "tables/ring.py"
_RESTORE: Final = "tables/restore.py"
_RESIZE: Final = "tables/resize.py"
_STORE: Final = "tables/store.py"
_RING_TESTS: Final = "tests/unit/test_ring.py"
_RESTORE_TESTS: Final = "tests/unit/test_restore.py"
_RESIZE_TESTS: Final = "tests/unit/test_resize.py"
_STORE_TESTS: Final = "tests/unit/test_store.py"
_CODEC: Final = "tables/codec.py"
_UPGRADE_TESTS: Final = "tests/unit/test_upgrade.py"
_OVERWRITTEN: Final = """\
        for occupant in self._overwritten(first_sequence, len(ids), live_from):
            writes.delete_index(occupant)
"""
_NOTED: Final = """\
        # Of more than the ring has room for nobody would remove the first ones: they are in no slot when they are overwritten.
        over = max(0, len(ids) - self._capacity)
        for sequence, each in enumerate(ids[over:], first_sequence + over):
            writes.put_index(each, sequence)
"""
_WITHIN: Final = "                and sequence >= head - capacity\n"
_FLOOR: Final = "                and sequence >= floor\n"
_KNOWN_ALREADY: Final = """\
                verdicts.append(duplicate)
                originals.append(sequence)
"""

MUTANTS: Final = (
    Mutant(
        "a-sealed-folder-stops-its-lane",
        "A worker that is alone stops a lane whose folder cannot be written, though the changelog has all its IDs.",
        (Patch("agents/opening.py", "            self.table.keep_in_memory(True)\n", ""),),
        "tests/faults/test_state_directory.py::test_read_only_at_the_start",
    ),
    Mutant(
        "unusable-workers-get-lanes",
        "A worker that cannot write its state keeps lanes beside one that can.",
        (Patch("app/worker/assignor.py", "if member not in unusable}", "}"),),
        "tests/unit/test_state_folder.py::test_who_is_given_lanes",
    ),
    Mutant(
        "eviction-too-early",
        "The ring keeps one ID fewer than it promises: the oldest is accepted again.",
        (Patch(_RING, _WITHIN, _WITHIN.replace(">=", ">")),),
        f"{_RING_TESTS}::test_exactly_n_newer",
    ),
    Mutant(
        "eviction-too-late",
        "The ring keeps one ID more than its size: a message is dropped that should pass.",
        (Patch(_RING, _WITHIN, _WITHIN.replace("head - capacity", "head - capacity - 1")),),
        f"{_RING_TESTS}::test_exactly_n_newer",
    ),
    Mutant(
        "head-stands-still-within-a-batch",
        "What a batch itself evicted is a duplicate still: the verdict depends on how the input was cut.",
        (Patch(_RING, _WITHIN, _WITHIN.replace("head - capacity", "self.head - capacity")),),
        f"{_RING_TESTS}::test_batch_larger_than_the_ring",
    ),
    Mutant(
        "floor-ignored",
        "What was cleared, or evicted while the ring was smaller, is known again.",
        (Patch(_RING, _FLOOR, ""),),
        f"{_RING_TESTS}::test_below_the_floor_is_dead",
    ),
    Mutant(
        "duplicate-recorded-twice",
        "A resend takes a slot of its own and evicts an ID that the ring promises to keep.",
        (
            Patch(
                _RING,
                _KNOWN_ALREADY,
                f"""\
{_KNOWN_ALREADY}                fresh[each] = head
                new_ids.append(each)
                new_times.append(time)
                head += 1
""",
            ),
        ),
        f"{_RING_TESTS}::test_known_id_is_not_added_twice",
    ),
    Mutant(
        "check-remembers",
        "An ID is known as soon as it was asked for: the kept batch is a duplicate of itself.",
        (
            Patch(
                _RING,
                "        return Checked(verdicts, originals, self.head, new_ids, new_times)\n",
                "        self.index.add(self.head, new_ids, new_times, self.low)\n"
                "        return Checked(verdicts, originals, self.head, new_ids, new_times)\n",
            ),
        ),
        f"{_RING_TESTS}::test_check_changes_nothing",
    ),
    Mutant(
        "age-off-by-one",
        "An ID exactly as old as the limit no longer counts.",
        (
            Patch(
                _RING,
                "return time - original > self.max_age_ms",
                "return time - original >= self.max_age_ms",
            ),
        ),
        f"{_RING_TESTS}::test_age",
    ),
    Mutant(
        "index-entry-dropped-unseen",
        "An ID that was evicted and accepted again is forgotten with its older slot.",
        (Patch(_RING, "sequences.get(oldest) == self._low", "oldest in sequences"),),
        f"{_RING_TESTS}::test_accepted_again_in_the_batch_that_evicts_it",
    ),
    Mutant(
        "stored-index-entry-dropped-unseen",
        "The same with the index in RocksDB.",
        (
            Patch(
                "tables/index.py",
                "            if sequence == occupant.sequence:\n",
                "            if sequence is not None:\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_stored_index_keeps_who_lives_elsewhere",
    ),
    Mutant(
        "stored-index-entry-dropped-too-late",
        "With the index in RocksDB an ID that overwrites itself in one batch is forgotten.",
        (Patch("tables/index.py", f"{_OVERWRITTEN}{_NOTED}", f"{_NOTED}{_OVERWRITTEN}"),),
        f"{_RESTORE_TESTS}::test_stored_index_keeps_who_came_back",
    ),
    Mutant(
        "stored-index-keeps-what-nobody-removes",
        "With the index in RocksDB a batch of more new IDs than the ring holds leaves entries behind, for ever.",
        (Patch("tables/index.py", "over = max(0, len(ids) - self._capacity)", "over = 0"),),
        f"{_RESTORE_TESTS}::test_stored_index_goes_round",
    ),
    Mutant(
        "stored-index-entry-dropped-unasked",
        "With the index in RocksDB an ID that was cleared and came again is forgotten when its old slot is overwritten.",
        (
            Patch(
                "tables/index.py",
                "if live_from is not None and occupant.sequence >= live_from:",
                "if live_from is not None:",
            ),
        ),
        f"{_RESTORE_TESTS}::test_stored_index_keeps_who_came_after_a_clearing",
    ),
    Mutant(
        "stored-slots-read-to-the-end-only",
        "With the index in RocksDB entries of a ring's first slots are left behind, in ever more space.",
        (
            Patch(
                "tables/store.py",
                "        if begin + count > capacity:\n            runs",
                "        if False:\n            runs",
            ),
        ),
        f"{_RESTORE_TESTS}::test_stored_index_goes_round",
    ),
    Mutant(
        "restored-index-entry-dropped-unseen",
        "A restore drops an ID whose slot of a former size is overwritten while it lives in another one.",
        (
            Patch(
                _RESTORE,
                "            if indexed == occupant.sequence:\n",
                "            if indexed is not None:\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_id_in_a_slot_of_a_former_size",
    ),
    Mutant(
        "restored-index-turned-back",
        "A restore points an ID to its older acceptance, which dies first.",
        (Patch(_RESTORE, "if indexed is None or indexed < sequence:", "if sequence >= 0:"),),
        f"{_RESTORE_TESTS}::test_restored_index_is_not_turned_back",
    ),
    Mutant(
        "slot-key-without-capacity",
        "After a change of size slots of the old and of the new size overwrite each other under compaction.",
        (
            Patch(
                "tables/codec.py",
                "_RING_KEY.pack(KIND_RING, capacity, sequence % capacity)",
                "_RING_KEY.pack(KIND_RING, 0, sequence % capacity)",
            ),
        ),
        "tests/property/test_codec_roundtrip.py::test_sizes_share_no_key",
    ),
    Mutant(
        "shrunk-without-a-floor",
        "What a smaller ring evicted comes back when the ring grows again.",
        (Patch(_RESIZE, "    if capacity != meta.capacity:\n", "    if capacity < 0:\n"),),
        f"{_RESIZE_TESTS}::test_shrunk_and_grown_again",
    ),
    Mutant(
        "living-slots-removed",
        "Slots of an earlier size get tombstones while an ID in them is alive.",
        (Patch(_RESIZE, "        if low < until:\n", "        if low < until - 1:\n"),),
        f"{_RESIZE_TESTS}::test_alive_is_left",
    ),
    Mutant(
        "memory-only-ring-remembers",
        "A ring that was in memory only calls IDs known of which it has no slot.",
        (
            Patch(
                _RESIZE,
                "    if not (persistent and meta.persistent):\n",
                "    if not (persistent or meta.persistent):\n",
            ),
        ),
        f"{_RESIZE_TESTS}::test_in_memory_only",
    ),
    Mutant(
        "epoch-ignored",
        "What an earlier opening still wants to write lands in the RocksDB of the present one.",
        (Patch(_STORE, "        if epoch != self.epoch:\n", "        if epoch > self.epoch:\n"),),
        f"{_STORE_TESTS}::test_stale_epoch",
    ),
    Mutant(
        "epochs-begin-again",
        "A store made afresh gives out epochs that were used, and takes the writes of an earlier opening.",
        (Patch(_STORE, "        self.epoch = next(_epochs)\n", "        self.epoch += 1\n"),),
        f"{_STORE_TESTS}::test_epochs_are_those_of_the_process",
    ),
    Mutant(
        "rocksdb-written-in-pieces",
        "A crash in the middle of a write leaves slots whose changelog position RocksDB does not know.",
        (Patch(_STORE, "        fill(Writes(batch))\n", "        fill(Writes(self._db))\n"),),
        f"{_STORE_TESTS}::test_write_is_all_or_nothing",
    ),
    Mutant(
        "trusted-beyond-the-end",
        "RocksDB that reflects a lost tail of the changelog is believed.",
        (
            Patch(
                _RESTORE,
                "    if state.position > bounds.high_watermark:\n",
                "    if state.position < 0:\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_position_beyond_the_end",
    ),
    Mutant(
        "trusted-before-the-start",
        "RocksDB that missed what was deleted from the changelog's start is believed.",
        (
            Patch(
                _RESTORE, "    if state.position + MARKER < bounds.start:\n", "    if state.position < 0:\n"
            ),
        ),
        f"{_RESTORE_TESTS}::test_position_before_the_start",
    ),
    Mutant(
        "trusted-however-old",
        "RocksDB that was away for longer than tombstones are kept holds what they removed.",
        (
            Patch(
                _RESTORE,
                "    if age > bounds.delete_retention_s / 2:\n",
                "    if age > bounds.delete_retention_s * 2:\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_age",
    ),
    Mutant(
        "record-before-the-position-not-compared",
        "A changelog that lost its tail and grew again is taken for the one that RocksDB knows.",
        (
            Patch(
                _RESTORE,
                "            if not self._verified:\n                self._verify(record)\n",
                "            self._verified = True\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_tail_lost_and_regrown",
    ),
    Mutant(
        "incarnation-ignored",
        "RocksDB is held against a changelog that was deleted and created again, and only its bytes give it away.",
        (
            Patch(
                _RESTORE,
                "        if meta.incarnation != known.incarnation:\n",
                "        if not meta.incarnation:\n",
            ),
        ),
        f"{_RESTORE_TESTS}::test_wrong_incarnation",
    ),
    Mutant(
        "one-incarnation-for-all",
        "A changelog that was deleted and created again cannot be told from the one before.",
        (Patch("tables/table.py", "else secrets.token_hex(8)", 'else "0" * 16'),),
        f"{_RESTORE_TESTS}::test_incarnation",
    ),
    Mutant(
        "head-goes-back",
        "RocksDB whose head is above the changelog's knows IDs that were never committed.",
        (Patch(_RESTORE, "        if meta.head < known.head:\n", "        if meta.head < 0:\n"),),
        f"{_RESTORE_TESTS}::test_head_above_a_later_one",
    ),
    Mutant(
        "older-record-applies",
        "A slot gets back an occupant that was overwritten long ago.",
        (
            Patch(
                _RESTORE,
                "        if occupant is not None and not codec.is_newer(value, occupant):\n            return\n",
                "",
            ),
        ),
        f"{_RESTORE_TESTS}::test_older_sequence_does_not_apply",
    ),
    Mutant(
        "ring-record-of-another-layout",
        "The layout changes and the version does not: an upgrade takes offsets for partitions, and no round trip tells.",
        (Patch(_CODEC, 'struct.Struct(">BQiqq")', 'struct.Struct(">BQqiq")'),),
        f"{_UPGRADE_TESTS}::test_known_ids_stay_known",
    ),
    Mutant(
        "runs-of-another-layout",
        "The names of a run's offsets change places and the version does not: an upgrade's first run begins at the start of the logs.",
        (
            Patch(
                "reconcile/night/nights.py",
                'tuple(each["origins"]), tuple(each["ends"])',
                'tuple(each["ends"]), tuple(each["origins"])',
            ),
        ),
        f"{_UPGRADE_TESTS}::test_runs_of_the_reconciliation",
    ),
    Mutant(
        "hops-of-another-byte-order",
        "An upgrade takes what came over bridges for that of other partitions: what is sent again is accepted.",
        (
            Patch(
                _CODEC,
                '_HOPS_KEY: Final = struct.Struct(">cI")',
                '_HOPS_KEY: Final = struct.Struct("<cI")',
            ),
        ),
        f"{_UPGRADE_TESTS}::test_what_came_over_a_bridge_stays_known",
    ),
)
