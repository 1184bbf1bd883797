"""Bugs in the native core, and in what it is written to RocksDB with."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_PARSE: Final = "native/src/parse.c"
_PLAN: Final = "native/src/plan.c"
_BUILD: Final = "native/src/build.c"
_IDS: Final = "native/src/ids.c"
_IDS_TESTS: Final = "tests/property/test_ids_model.py"
_RESTORE_TESTS: Final = "tests/unit/test_restore.py"
_FETCH: Final = "app/worker/raw_fetch.py"
_BUFFERS: Final = "app/worker/buffers.py"
_FETCH_TESTS: Final = "tests/unit/test_raw_fetch.py"
_SAME_BYTES: Final = "tests/property/test_native_path.py::test_same_bytes"
_LEFT: Final = "tests/property/test_native_path.py::test_not_its_own"
_SAME_RECORDS: Final = "tests/property/test_native_parse.py::test_same_records"
_DAMAGE: Final = "tests/property/test_native_parse.py::test_damage"
_LIVE: Final = "known >= head - work->capacity && known >= work->floor"
_CHUNK_TESTS: Final = "tests/unit/test_chunks.py"

MUTANTS: Final = (
    Mutant(
        "core-evicts-too-late",
        "Whether a message is dropped depends on who decided it.",
        (Patch(_PLAN, _LIVE, _LIVE.replace("capacity &&", "capacity - 1 &&")),),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-ignores-the-floor",
        "What was cleared is known again.",
        (Patch(_PLAN, _LIVE, "known >= head - work->capacity"),),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-takes-what-is-at-home-elsewhere",
        "A resend that came by another lane is accepted.",
        (
            Patch(
                _PLAN,
                "return (int)(scan->hash % (uint32_t)rules->homes) == rules->partition;",
                "return 1;",
            ),
        ),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-opens-no-envelope-and-takes-it",
        "A transaction is accepted as one message, unread.",
        (
            Patch(
                _PLAN, "if (is_one_of(rules->special, rules->special_count, name, name_length)) return 0;", ""
            ),
        ),
        _LEFT,
        native=True,
    ),
    Mutant(
        "core-keeps-forged-headers",
        "A producer names the source of its message.",
        (Patch(_BUILD, "        if (left_out) continue;\n", ""),),
        _SAME_BYTES,
        native=True,
    ),
    Mutant(
        "core-forgets-the-newer",
        "An ID that was evicted and came again is forgotten with its first sequence.",
        (Patch(_IDS, "while (shelf->cells[place].at && shelf->cells[place].at != at)", "while (0)"),),
        f"{_IDS_TESTS}::test_same_as_the_index_in_python",
        native=True,
    ),
    Mutant(
        "core-loses-ids-behind-a-hole",
        "An ID that stood behind a forgotten one in the hash table is taken for new.",
        (Patch(_IDS, "        shelf->cells[hole] = shelf->cells[place];\n        hole = place;\n", ""),),
        f"{_IDS_TESTS}::test_many",
        native=True,
    ),
    Mutant(
        "core-takes-half-a-ring-for-a-whole-one",
        "What is missing in a changelog or in RocksDB is accepted once more.",
        (Patch(_IDS, "self->count == head - low && ", ""),),
        f"{_IDS_TESTS}::test_whole",
        native=True,
    ),
    Mutant(
        "core-gathers-over-a-gap",
        "What should be looked at in Python is passed over.",
        (Patch(_IDS, "(gathered && sequence != self->last + 1)", "0"),),
        f"{_IDS_TESTS}::test_gathering_ends_before_what_is_not_usual",
        native=True,
    ),
    Mutant(
        "restore-trusts-what-was-gathered",
        "A changelog in another order than the core expects gives a ring that lacks IDs.",
        (Patch("tables/resize.py", "        restore.gathering.require_whole(ring.low, ring.head)\n", ""),),
        f"{_RESTORE_TESTS}::test_what_is_irregular_is_restored_in_python",
        native=True,
    ),
    Mutant(
        "core-reads-aborted-records",
        "What a producer has aborted is accepted.",
        (Patch(_PARSE, "if (attributes & TRANSACTIONAL && is_aborted(found, producer)) skip = 1;", ""),),
        _SAME_RECORDS,
        native=True,
    ),
    Mutant(
        "core-trusts-what-it-reads",
        "A damaged batch is taken for messages.",
        (
            Patch(
                _PARSE,
                "if (crc32c(batch + AT_ATTRIBUTES, length) != load_be32(batch + AT_CRC)) return 0;",
                "(void)length;",
            ),
        ),
        _DAMAGE,
        native=True,
    ),
    Mutant(
        "core-counts-few-forged-headers",
        "A producer with very many headers names the source of its message.",
        (Patch("native/src/plan.h", "int32_t ours;", "int16_t ours;"),),
        "tests/property/test_native_path.py::test_more_headers_of_ours_than_16_bits_count",
        native=True,
    ),
    Mutant(
        "core-reads-past-a-record",
        "A malformed record ends the interpreter, or brings what is no part of it.",
        (Patch(_PARSE, "length < -1 || length > reader->end - reader->at", "length < -1"),),
        _SAME_RECORDS,
        native=True,
    ),
    Mutant(
        "chunks-removed-all-at-once",
        "A ring that was made smaller holds up all lanes of its worker.",
        (Patch("tables/chunks.py", " and len(found) < REMOVED_MAX", ""),),
        f"{_CHUNK_TESTS}::test_many_dead_chunks_go_in_turns",
    ),
    Mutant(
        "raw-fetch-stands-still",
        "What the core has read of a fetch is fetched again, and again.",
        (Patch(_FETCH, "        parsed.next_fetch_offset = part.end\n", ""),),
        f"{_FETCH_TESTS}::test_taken_raw_and_whole",
        native=True,
    ),
    Mutant(
        "raw-fetch-held",
        "A worker in a backlog grows by a hundred MiB: what it has fetched waits for a collection.",
        (Patch(_FETCH, "        parsed._records_iterator = None  # noqa: SLF001\n", ""),),
        f"{_FETCH_TESTS}::test_dropped_with_the_fetch",
        native=True,
    ),
    Mutant(
        "raw-fetch-decompressed-at-once",
        "A fetch that is small only while it is compressed takes the memory that a bound is for.",
        (Patch(_PARSE, "(records >= bounds->records || bytes >= bounds->bytes)", "0"),),
        f"{_FETCH_TESTS}::test_bounded_by_bytes",
        native=True,
    ),
    Mutant(
        "part-forgets-aborts",
        "A transaction that was aborted before a part of a fetch is accepted in it.",
        (
            Patch(
                _PARSE,
                "        next = base + last + 1;\n        if (next <= from) {",
                "        next = base + last + 1;\n        if (next <= from) {\n            found->aborted_count = 0;",
            ),
        ),
        f"{_FETCH_TESTS}::test_transactions_over_parts",
        native=True,
    ),
    Mutant(
        "lying-bytes-stop-a-partition",
        "A record batch that is larger than the bound is never got over.",
        (
            Patch(
                _BUFFERS,
                "share is None or not share.batches or share.bytes <",
                "share is None or not share.bytes or share.bytes <",
            ),
        ),
        f"{_FETCH_TESTS}::test_what_lies_does_not_stop_a_partition_that_has_nothing",
        native=True,
    ),
    Mutant(
        "objects-uncounted",
        "Batches that are not plain take twice the memory that a bound gives them.",
        (Patch(_BUFFERS, "            self._left += more\n", "            more = 0\n"),),
        f"{_FETCH_TESTS}::test_objects_cost_more",
        native=True,
    ),
    Mutant(
        "chunk-removed-too-early",
        "A restart forgets IDs that the ring promises to keep.",
        (Patch("tables/chunks.py", "last_of(self._keys[0]) < low", "last_of(self._keys[0]) <= low + 1"),),
        f"{_CHUNK_TESTS}::test_dead_chunks_are_removed",
    ),
    Mutant(
        "slot-before-chunk",
        "An older slot stands for a newer one after a restart.",
        (
            Patch(
                "tables/restore.py",
                "if occupant is None or codec.is_newer(value, occupant):\n                    self.occupants",
                "if True:\n                    self.occupants",
            ),
        ),
        f"{_CHUNK_TESTS}::test_of_slot_and_chunk_the_newer_counts",
    ),
    Mutant(
        "chunks-unsaid",
        "An older version trusts a RocksDB of which it sees a part.",
        (
            Patch(
                "tables/store.py",
                "_POSITION_CHUNKED if self.chunk_keys() else _POSITION: state",
                "_POSITION: state",
            ),
        ),
        f"{_CHUNK_TESTS}::test_a_version_that_knows_no_chunks_rebuilds",
    ),
    Mutant(
        "core-takes-emptied-markers-for-damage",
        "What compaction has left of a changelog is read in Python.",
        (Patch(_PARSE, "    if (load_be32(batch + AT_COUNT) == 0) return 0;\n", ""),),
        "tests/integration/test_emptied_markers.py::test_read_over",
        native=True,
    ),
    Mutant(
        "core-takes-the-time-to-go-for-the-first-time",
        "A changelog that the cleaner has been through is read in Python.",
        (Patch(_PARSE, ", .first_time = load_be64(batch + AT_FIRST_TIME)};", "};"),),
        "tests/integration/test_emptied_markers.py::test_read_over",
        native=True,
    ),
)
