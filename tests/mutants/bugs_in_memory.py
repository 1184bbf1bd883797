"""Bugs in what bounds the memory of a worker: too much is fetched, somebody starves, or what is free is not known to be."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_BATCH: Final = "agents/batch.py"
_BUFFERS: Final = "app/worker/buffers.py"
_TESTS: Final = "tests/unit/test_buffers.py"

MUTANTS: Final = (
    Mutant(
        "joined-whatever-the-size",
        "What waits for a lane that is slow becomes a transaction of gigabytes.",
        (
            Patch(
                _BATCH,
                "        if self.bytes + later.bytes > JOINED_BYTES_MAX:\n            return None\n",
                "",
            ),
        ),
        f"{_TESTS}::test_joined_batches_have_a_size",
    ),
    Mutant(
        "faust-keeps-the-last-batch",
        "Each partition has a batch in memory that was finished long ago, until the next one comes.",
        (
            Patch(
                _BATCH,
                "        batch, self._batch = self._batch, None\n        return batch\n",
                "        return self._batch\n",
            ),
        ),
        f"{_TESTS}::test_given_back_when_dropped",
    ),
    Mutant(
        "dropped-batches-stay-counted",
        "After some rebalances nothing is fetched any more.",
        (Patch(_BUFFERS, "    def __del__(self) -> None:\n        self.free()\n", ""),),
        f"{_TESTS}::test_given_back_when_dropped",
    ),
    Mutant(
        "lane-keeps-the-last-batch",
        "Each lane has a batch in memory that was finished, until the next one comes.",
        (
            Patch(
                "agents/lane.py",
                "            del batch  # while the next one is waited for nobody needs it\n",
                "",
            ),
        ),
        "tests/unit/test_lanes.py::test_memory_of_a_batch[False]",
    ),
    Mutant(
        "finished-is-not-free",
        "A trace that refers to a batch, or Faust, stops its lane until Python looks for cycles.",
        (Patch("agents/lane.py", "                batch.free()\n", "                pass\n"),),
        "tests/unit/test_lanes.py::test_memory_of_a_batch[True]",
    ),
    Mutant(
        "given-back-twice",
        "What is finished and then dropped counts twice: the bound is none.",
        (
            Patch(
                _BUFFERS,
                "        count, self._left, self._objects",
                "        count, _, self._objects",
            ),
        ),
        f"{_TESTS}::test_given_back_when_done",
    ),
    Mutant(
        "nobody-is-told-of-room",
        "Each batch behind the bound waits for the end of a time-out.",
        (Patch(_BUFFERS, "            self.told()\n", ""),),
        f"{_TESTS}::test_who_waits_is_told",
    ),
    Mutant(
        "too-large-never-passes",
        "Lanes whose output is refused have used the memory up, and all others starve.",
        (
            Patch(
                _BUFFERS,
                "        return share is None or not share.batches or share.bytes < self.memory.limit(share.bytes)\n",
                "        return share is None or self.used < self.bytes_max\n",
            ),
        ),
        f"{_TESTS}::test_one_too_large_passes_alone",
    ),
    Mutant(
        "first-partitions-use-up-all",
        "The first partitions that are read use up all, and the last ones read message by message.",
        (
            Patch(
                _BUFFERS,
                "share.bytes < self.memory.limit(share.bytes)\n",
                "self.used < self.bytes_max\n",
            ),
        ),
        f"{_TESTS}::test_stuck_ones_leave_room",
    ),
    Mutant(
        "asked-for-without-room",
        "The memory of partitions that are not read grows by one answer of the broker after the other.",
        (
            Patch(
                _BUFFERS,
                "                if self._buffers.may_fetch(tp, wanted=wanted):\n",
                "                if self._buffers.may_fetch(tp, wanted=wanted) or tp:\n",
            ),
        ),
        f"{_TESTS}::test_who_has_no_room_is_left_out",
    ),
    Mutant(
        "what-lies-there-does-not-count",
        "Brokers are asked for more although much of what they sent is not read.",
        (Patch(_BUFFERS, "        return not self.memory.crowded and (wanted", "        return (wanted"),),
        f"{_TESTS}::test_what_lies_there_is_bounded",
    ),
    Mutant(
        "departed-partitions-count",
        "What lanes had of partitions that went away is given to those that came, once more than there is.",
        (Patch(_BUFFERS, "            each.joined = False\n", "            pass\n"),),
        f"{_TESTS}::test_partitions_that_went_away",
    ),
    Mutant(
        "stores-for-themselves",
        "64 lanes have half a gigabyte of what is not in RocksDB's files yet.",
        (Patch("tables/store_options.py", "    found.set_write_buffer_manager(shared().buffers)\n", ""),),
        "tests/unit/test_store.py::test_stores_share_what_is_not_in_files_yet",
    ),
    Mutant(
        "failures-keep-their-batches",
        "A lane whose output is refused has its batch once for each attempt.",
        (
            Patch(
                "ringfence_kafka/transaction/outgoing.py",
                "        del results, error, awaitables\n",
                "        pass\n",
            ),
        ),
        "tests/unit/test_producer.py::test_failure_keeps_nothing",
    ),
    Mutant(
        "readers-leave-what-they-fetched",
        "Each attempt of a lane whose output is refused leaves megabytes until Python looks for cycles.",
        (
            Patch(
                "ringfence_kafka/log_reader.py",
                "    # What was fetched beyond what was read: each lane that fails reads its batch again, and would leave megabytes each time.\n"
                "    insides.drop_all_fetched(consumer)\n",
                "",
            ),
        ),
        "tests/unit/test_log_reader.py::test_what_was_not_read_is_free",
    ),
    Mutant(
        "any-replica-says-what-is-gone",
        "A message that a follower does not have yet is finished, and no handler had it.",
        (Patch("ringfence_client/parked.py", "if not await self._is_there(tp, offset):", "if True:"),),
        "tests/integration/test_group_backlog.py::test_parked_and_a_replica_that_is_behind",
    ),
)
