"""Bugs in a lane at work: what it is given, what it does with a failed batch, what is in its transaction."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_LANE: Final = "agents/lane.py"
_TRANSACTIONS: Final = "agents/transactions.py"
_CURSOR: Final = "agents/cursor.py"
_TRANSPORT: Final = "app/worker/transport.py"
_IMPLICIT: Final = "ringfence_kafka/transaction/implicit.py"
_EXPLICIT: Final = "ringfence_kafka/transaction/explicit.py"
_ADDED: Final = "ringfence_kafka/transaction/added.py"
_ADDED_TESTS: Final = "tests/unit/test_added.py"
_TIMED_OUT: Final = Patch(
    _ADDED, "import KafkaError, NodeNotReadyError", "import RequestTimedOutError, NodeNotReadyError"
)
_UNIT: Final = "tests/unit/test_implicit.py"
_RECORDS: Final = "ringfence_kafka/records.py"
_LANE_TESTS: Final = "tests/integration/test_lane_path.py"
_TRANSPORT_TESTS: Final = "tests/integration/test_transport.py"
_ONE_TRANSACTION: Final = f"{_LANE_TESTS}::test_a_batch_is_one_transaction"
_OFFSETS: Final = "{TopicPartition(batch.topic, batch.partition): outcome.end}"
_TRANSACT: Final = f"""\
            bases = await producer.transact(
                [*outputs, *state],
                {_OFFSETS},
                opening.group_id,
                approve,
            )
"""
_ROCKSDB_FIRST: Final = (
    Patch(
        _TRANSACTIONS,
        "        async with asyncio.timeout(TRANSACTION_LIMIT_S):\n",
        "        table.apply(opened.epoch, change, 0)\n"
        "        async with asyncio.timeout(TRANSACTION_LIMIT_S):\n",
    ),
    Patch(_TRANSACTIONS, "        table.apply(opened.epoch, change, position)\n", ""),
)
_FAILED: Final = "        await opened.producer.discard()\n"

MUTANTS: Final = (
    Mutant(
        "rocksdb-before-commit",
        "After a crash before the commit the replayed message is a duplicate of itself: a silent loss.",
        _ROCKSDB_FIRST,
        f"{_LANE_TESTS}::test_state_follows_the_commit",
    ),
    Mutant(
        "rocksdb-before-commit-and-believed",
        "The same, where the restore does not hold RocksDB against the changelog: it would heal a single crash.",
        (
            *_ROCKSDB_FIRST,
            Patch(
                "tables/restore.py",
                "        self._verified = state is None or start >= state.position\n",
                "        self._verified = True\n",
            ),
        ),
        f"{_LANE_TESTS}::test_crash_before_the_commit_rejects_nothing",
    ),
    Mutant(
        "sends-not-awaited",
        "The commit succeeds although the broker refused a batch, and what that held is missing.",
        (
            Patch(
                "ringfence_kafka/transaction/explicit.py",
                "[*futures, self._send_offsets(committed, group_id)]",
                "[self._send_offsets(committed, group_id)]",
            ),
        ),
        f"{_LANE_TESTS}::test_refused_record_stops_the_commit[explicit]",
    ),
    Mutant(
        "refusals-not-read",
        "The same where partitions are added by writing to them.",
        (
            Patch(
                _IMPLICIT,
                "    return code in {NoError.errno, DuplicateSequenceNumber.errno}\n",
                "    return code != _NO_ANSWER\n",
            ),
        ),
        f"{_LANE_TESTS}::test_refused_record_stops_the_commit[implicit]",
    ),
    Mutant(
        "lost-commit-given-up",
        "A commit whose answer was lost is aborted, or counts as done: nobody knows which.",
        (
            Patch(
                _IMPLICIT,
                "            code = _NO_ANSWER if answer is None else answer.error_code\n",
                "            if answer is None:\n                return\n            code = int(answer.error_code)\n",
            ),
        ),
        f"{_UNIT}::test_commit_is_asked_for_until_it_is_answered",
    ),
    Mutant(
        "aborted-after-the-commit",
        "A transaction that may be committed already is aborted, and its offset with it, while its lane believes the rest.",
        (Patch(_IMPLICIT, "        if not self._committing:\n            await", "        await"),),
        f"{_UNIT}::test_what_may_be_committed_is_not_aborted",
    ),
    Mutant(
        "old-epoch",
        "The coordinator has raised the epoch, and the lane fences itself with each transaction.",
        (Patch(_IMPLICIT, "            self._who = answer.producer\n", ""),),
        f"{_UNIT}::test_each_transaction_has_an_epoch_of_its_own",
    ),
    Mutant(
        "brokers-at-once",
        "Brokers that add partitions at once refuse one another, with a back-off each time.",
        (Patch(_IMPLICIT, "len(by_leader) > 1 and self._added.issuperset(heads)", "len(by_leader) > 1"),),
        f"{_UNIT}::test_brokers_add_their_partitions_one_after_the_other",
    ),
    Mutant(
        "haste-fills-a-core",
        "A worker of many lanes with a little to do makes transactions of a message each, as fast as its core allows.",
        (
            Patch(
                "app/worker/spacing.py",
                "            self._least_s = min(self.wait_s * SLOWER,",
                "            min(self.wait_s * SLOWER,",
            ),
        ),
        "tests/unit/test_spacing.py::test_many_lanes_leave_half_of_a_core",
    ),
    Mutant(
        "half-of-the-wait",
        "The wait is as long as the target leaves, and half of the messages wait for half of that: twice the transactions that are needed.",
        (Patch("app/worker/spacing.py", "max(2 * (self.target_s", "max((self.target_s"),),
        "tests/unit/test_spacing.py::test_half_of_the_messages_are_committed_in_time",
    ),
    Mutant(
        "fetch-costs-no-time",
        "What a fetch takes comes on top of app.latency_target_ms.",
        (Patch("app/worker/pace.py", "return asked if now - asked <", "return now if now - asked <"),),
        "tests/unit/test_pace.py::test_when_a_batch_begins",
    ),
    Mutant(
        "marker-costs-no-time",
        "What readers wait for the marker comes on top of app.latency_target_ms.",
        (Patch("agents/transactions.py", "batch.asked_at + marker_s)", "batch.asked_at)"),),
        "tests/unit/test_transactions.py::test_how_long_a_batch_took",
    ),
    Mutant(
        "begun-before-the-markers",
        "Of transactions that follow one another every third waits 20 ms for the broker to ask the coordinator again.",
        (Patch(_IMPLICIT, "        if left > 0:\n", "        if left > 9:\n"),),
        f"{_UNIT}::test_the_markers_of_one_are_written_before_the_next",
    ),
    Mutant(
        "refusals-are-not-felt",
        "Where markers take long, because they have copies, each transaction of a busy lane waits 20 ms.",
        (
            Patch(
                "ringfence_kafka/transaction/gap.py",
                "self._gap_s * LONGER)",
                "self._gap_s)",
            ),
        ),
        "tests/unit/test_gap.py::test_it_settles_where_markers_are_written",
    ),
    Mutant(
        "late-end-in-the-next",
        "An end without an answer comes in the midst of the next transaction, which is committed in part.",
        (
            Patch(
                _EXPLICIT,
                "        if self._unanswered:\n",
                "        if self._unanswered and not self._lane:\n",
            ),
        ),
        f"{_ADDED_TESTS}::test_what_may_come_late",
    ),
    Mutant(
        "late-end-of-a-closed-connection",
        "The same, where no time-out told that there was no answer.",
        (Patch(_ADDED, "        except KafkaError:\n", "        except RequestTimedOutError:\n"), _TIMED_OUT),
        f"{_ADDED_TESTS}::test_what_may_come_late",
    ),
    Mutant(
        "late-offsets-in-the-next",
        "Offsets without an answer come in the midst of the next transaction: the group goes back, and a consumer's successor does all again.",
        (
            Patch(
                _ADDED,
                "HARMFUL: Final = (TxnOffsetCommitRequest, EndTxnRequest)\n",
                "HARMFUL: Final = (EndTxnRequest,)\n",
            ),
        ),
        f"{_ADDED_TESTS}::test_what_may_come_late",
    ),
    Mutant(
        "sequences-go-on",
        "With a new epoch the numbers of batches begin anew: the broker refuses the second transaction.",
        (Patch(_IMPLICIT, "            self._sequences.clear()\n", ""),),
        f"{_UNIT}::test_each_transaction_has_an_epoch_of_its_own",
    ),
    Mutant(
        "changelog-outside",
        "IDs are stored in a transaction of their own: if the outputs fail then, the resend is dropped.",
        (
            Patch(
                _TRANSACTIONS,
                _TRANSACT,
                f"""\
            bases = await producer.transact(state, {{}}, opening.group_id)
            await producer.transact(outputs, {_OFFSETS}, opening.group_id)
""",
            ),
        ),
        _ONE_TRANSACTION,
        (f"{_LANE_TESTS}::test_refused_record_stops_the_commit",),
    ),
    Mutant(
        "forward-outside",
        "What is forwarded is committed apart from the offset: after a failure it is forwarded twice.",
        (
            Patch(
                _TRANSACTIONS,
                _TRANSACT,
                f"""\
            forward = [each for each in outputs if each.topic == opening.forward_topic]
            outputs = [each for each in outputs if each.topic != opening.forward_topic]
            await producer.transact(forward, {{}}, opening.group_id)
            bases = await producer.transact([*outputs, *state], {_OFFSETS}, opening.group_id)
""",
            ),
        ),
        _ONE_TRANSACTION,
    ),
    Mutant(
        "offset-outside",
        "The input offset is committed ahead of the outputs: if these fail then, the batch is lost.",
        (
            Patch(
                _TRANSACTIONS,
                _TRANSACT,
                f"""\
            await producer.transact([], {_OFFSETS}, opening.group_id)
            bases = await producer.transact([*outputs, *state], {{}}, opening.group_id)
""",
            ),
        ),
        _ONE_TRANSACTION,
        (f"{_LANE_TESTS}::test_refused_record_stops_the_commit",),
    ),
    Mutant(
        "next-of-one-input",
        "The meta record forgets how far the lane is in its other input, which is repeated when offsets expire.",
        (
            Patch(
                _TRANSACTIONS,
                "nexts = {each.topic: each.next for each in opened.cursors.values()}\n",
                "nexts: dict[str, int] = {}\n",
            ),
        ),
        "tests/integration/test_sizes.py::test_expired_group_offsets_of_both_inputs",
    ),
    Mutant(
        "failed-batch-dropped",
        "The batches that are queued behind a failed one commit over it.",
        (Patch(_LANE, _FAILED, f"{_FAILED}        self._kept = None\n"),),
        f"{_LANE_TESTS}::test_failed_batch_is_kept[after-send]",
        harmless="an opening has everything fetched again from what comes next, and refuses what was fetched before",
    ),
    Mutant(
        "failed-batch-sought-back-to",
        "A failed batch is left to a seek, which what was already fetched overtakes.",
        (
            Patch(
                _LANE,
                _FAILED,
                f"""\
{_FAILED}        kept, self._kept = self._kept, None
        if kept is not None:
            await self._tenure.right.rewind(kept.topic, kept.partition, kept.begin)
""",
            ),
        ),
        f"{_LANE_TESTS}::test_failed_batch_is_kept[before-commit]",
        harmless="an opening has everything fetched again from what comes next, and refuses what was fetched before",
    ),
    Mutant(
        "failed-batch-believed",
        "After a failure a lane goes on with what it fetched before, though the broker lost it and filled its offsets.",
        (
            Patch(
                _LANE,
                "            again = await self._opening.read_again(self._kept)\n",
                "            again = self._kept\n",
            ),
        ),
        f"{_LANE_TESTS}::test_failed_batch_is_read_again",
    ),
    Mutant(
        "closing-cancels",
        "A lane that is closed in the middle of a transaction leaves it to be done again.",
        (
            Patch(
                _LANE,
                "        self._tenure.ended()\n        self._disturb()\n",
                "        self._tenure.ended()\n        self._task.cancel()\n",
            ),
        ),
        f"{_LANE_TESTS}::test_closing_finishes_the_transaction",
    ),
    Mutant(
        "gap-accepted",
        "A batch that begins above what comes next is processed, and what lies between is lost.",
        (
            Patch(
                _CURSOR,
                "        if batch.begin > self.next:\n            start",
                "        if batch.begin > batch.end:\n            start",
            ),
        ),
        f"{_LANE_TESTS}::test_gap_is_refused",
    ),
    Mutant(
        "rewound-for-what-was-fetched-before",
        "Each batch that was fetched before a rewind asks for one more, and the lane never gets on.",
        (Patch(_CURSOR, "        if batch.seek < self._seek:\n", "        if batch.seek < 0:\n"),),
        f"{_LANE_TESTS}::test_gap_is_refused",
    ),
    Mutant(
        "gap-of-retention-unsaid",
        "Records that retention deleted unprocessed are missing, and nobody is told.",
        (Patch(_CURSOR, "                self._say_gap(start)\n", ""),),
        f"{_LANE_TESTS}::test_records_deleted_by_retention_are_a_gap",
    ),
    Mutant(
        "gap-of-what-another-owner-has-processed",
        "A lane that comes back says that messages are lost which another owner has processed: somebody sends them again at night.",
        (Patch(_CURSOR, "                await self._require_own(cluster)\n", ""),),
        "tests/unit/test_cursor.py::test_processed_by_another_owner_and_deleted",
    ),
    Mutant(
        "processed-not-trimmed",
        "A batch that reaches back below the offset that comes next repeats records without an ID.",
        (
            Patch(
                _CURSOR,
                "return raw.since(batch.records, self.next)",
                "return batch.records",
            ),
        ),
        f"{_LANE_TESTS}::test_what_was_processed_is_trimmed",
    ),
    Mutant(
        "input-read-uncommitted",
        "Records that their producer aborted are accepted.",
        (
            Patch(
                _TRANSPORT,
                'consumer._isolation_level = "read_committed"',
                'consumer._isolation_level = "read_uncommitted"',
            ),
        ),
        f"{_TRANSPORT_TESTS}::test_aborted_records_are_bridged",
    ),
    Mutant(
        "batch-begins-at-its-first-record",
        "A stretch of aborted records looks like a gap: the lane reads it again for ever.",
        (
            Patch(
                _TRANSPORT,
                "tp.topic, tp.partition, begin, end, records,",
                "tp.topic, tp.partition, records[0].offset, end, records,",
            ),
        ),
        f"{_TRANSPORT_TESTS}::test_aborted_records_are_bridged",
    ),
    Mutant(
        "malformed-batch-mistaken",
        "Another record batch than the malformed one is read again: records come twice, and aborted ones pass.",
        (
            Patch(
                _RECORDS,
                "next_batch().next_offset > self.next_fetch_offset:",
                "next_batch().next_offset >= self.next_fetch_offset:",
            ),
        ),
        "tests/unit/test_records.py::test_nothing_is_lost_or_comes_twice",
    ),
    Mutant(
        "malformed-unnamed",
        "A malformed record is accepted with header names that nobody gave it.",
        (Patch(_TRANSPORT, "dict(parsed.malformed) if parsed is not None else {}", "{}"),),
        "tests/integration/test_malformed.py::test_header_name_that_is_not_utf8",
    ),
    Mutant(
        "rewind-unmarked",
        "What was fetched before a rewind cannot be told from what was fetched after it.",
        (Patch(_TRANSPORT, "        self._seeks[tp] += 1\n", ""),),
        f"{_TRANSPORT_TESTS}::test_rewind_fetches_again",
    ),
    Mutant(
        "fetching-ended-for-good",
        "An error in aiokafka's task that fetches ends the fetching, and the worker with it.",
        (Patch(_TRANSPORT, "        insides.keep_fetching(fetcher)\n", ""),),
        f"{_TRANSPORT_TESTS}::test_fetching_begins_anew",
    ),
    Mutant(
        "room-unheard",
        "What was fetched while a buffer was full waits for a time-out after there is room: lanes stall, all at once.",
        (
            Patch(
                _TRANSPORT,
                "        super().on_buffer_drop(tp)\n        self.thread.wake()\n",
                "        super().on_buffer_drop(tp)\n",
            ),
        ),
        f"{_TRANSPORT_TESTS}::test_room_in_a_buffer_ends_the_wait",
    ),
    Mutant(
        "refusal-tried-at-once",
        "A missing right is asked for again as fast as the broker refuses.",
        (
            Patch(
                _TRANSPORT,
                "                self._resting[tp] = time.monotonic() + REST_S\n                self.transport.unreadable(tp.topic, "
                'tp.partition, lacking("topic", tp.topic, {"Read"}))\n',
                '                self.transport.unreadable(tp.topic, tp.partition, lacking("topic", tp.topic, {"Read"}))\n',
            ),
        ),
        f"{_TRANSPORT_TESTS}::test_a_refused_partition_rests",
    ),
    Mutant(
        "joined-over-a-gap",
        "Batches between which something is missing become one, and nobody sees that it is missing.",
        (Patch("agents/batch.py", "later.seek, later.begin", "later.seek, self.end"),),
        "tests/unit/test_mail.py::test_what_does_not_go_on_stays_apart",
    ),
)
