"""Bugs in a lane's transactions, in what it takes from its input, and in lanes of several partitions."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_CURSOR: Final = "agents/lane/cursor.py"
_LANE: Final = "agents/lane/lane.py"
_TRANSACTIONS: Final = "agents/lane/transactions.py"
_EXPLICIT: Final = "ringfence_kafka/producer/transaction_v1.py"
_LANE_PATH_TESTS: Final = "tests/integration/test_no_loss_lanes.py"
_ROCKSDB_FIRST: Final = (
    Patch(
        _TRANSACTIONS,
        "        async with asyncio.timeout(TRANSACTION_LIMIT_S):\n",
        "        table.apply(opened.epoch, change, 0)\n"
        "        async with asyncio.timeout(TRANSACTION_LIMIT_S):\n",
    ),
    Patch(_TRANSACTIONS, "        table.apply(opened.epoch, change, position_behind(state, bases))\n", ""),
)
_ONE_TRANSACTION: Final = f"{_LANE_PATH_TESTS}::test_a_batch_is_one_transaction"

_TRANSACT: Final = """\
bases = await producer.transact(
                [*outputs, *state],
                {TopicPartition(topic, partition): end for partition, end in ends.items()},
                opening.group_id,
                approve,
            )"""
_TESTS: Final = "tests/simulation/test_fixed_lanes.py"
_UNIT_TESTS: Final = "tests/unit/agents/decision/test_several_partitions.py"

MUTANTS: Final = (
    Mutant(
        "rocksdb-before-commit",
        "After a crash before the commit the replayed message is a duplicate of itself: a silent loss.",
        _ROCKSDB_FIRST,
        f"{_LANE_PATH_TESTS}::test_state_follows_the_commit",
    ),
    Mutant(
        "sends-not-awaited",
        "The commit succeeds although the broker refused a batch, and what that held is missing.",
        Patch(_EXPLICIT, "[*futures, self._send_offsets(committed,", "[self._send_offsets(committed,"),
        f"{_LANE_PATH_TESTS}::test_refused_record_stops_the_commit[explicit]",
    ),
    Mutant(
        "refusals-not-read",
        "The same where partitions are added by writing to them.",
        Patch(
            "ringfence_kafka/producer/error_codes.py",
            "return code in {NoError.errno, DuplicateSequenceNumber.errno}",
            "return code != NO_ANSWER",
        ),
        f"{_LANE_PATH_TESTS}::test_refused_record_stops_the_commit[implicit]",
    ),
    Mutant(
        "lost-commit-given-up",
        "A commit whose answer was lost is aborted, or counts as done: nobody knows which.",
        Patch(
            "ringfence_kafka/producer/transaction_v2.py",
            "code = NO_ANSWER if answer is None else answer.error_code",
            "if answer is None:\n                return\n            code = int(answer.error_code)",
        ),
        "tests/unit/ringfence_kafka/producer/test_transaction_v2.py::test_commit_is_asked_for_until_it_is_answered",
    ),
    Mutant(
        "late-end-in-the-next",
        "An end without an answer comes in the midst of the next transaction, which is committed in part.",
        Patch(_EXPLICIT, "if self._unanswered:", "if self._unanswered and not self._lane:"),
        "tests/unit/ringfence_kafka/aiokafka_patches/test_transaction_sender.py::test_what_may_come_late",
    ),
    Mutant(
        "changelog-outside",
        "IDs are stored in a transaction of their own: if the outputs fail then, the resend is dropped.",
        Patch(
            _TRANSACTIONS,
            _TRANSACT,
            "bases = await producer.transact(state, {}, opening.group_id)\n"
            "            await producer.transact(outputs, {TopicPartition(topic, partition): end for partition, end in ends.items()}, opening.group_id)",
        ),
        _ONE_TRANSACTION,
        also=(f"{_LANE_PATH_TESTS}::test_refused_record_stops_the_commit",),
    ),
    Mutant(
        "forward-outside",
        "What is forwarded is committed apart from the offset: after a failure it is forwarded twice.",
        Patch(
            _TRANSACTIONS,
            _TRANSACT,
            "forward = [each for each in outputs if each.topic == opening.forward_topic]\n"
            "            outputs = [each for each in outputs if each.topic != opening.forward_topic]\n"
            "            await producer.transact(forward, {}, opening.group_id)\n"
            "            bases = await producer.transact([*outputs, *state], {TopicPartition(topic, partition): end for partition, end in ends.items()}, opening.group_id)",
        ),
        _ONE_TRANSACTION,
    ),
    Mutant(
        "offset-outside",
        "The input offset is committed ahead of the outputs: if these fail then, the batch is lost.",
        Patch(
            _TRANSACTIONS,
            _TRANSACT,
            "await producer.transact([], {TopicPartition(topic, partition): end for partition, end in ends.items()}, opening.group_id)\n"
            "            bases = await producer.transact([*outputs, *state], {}, opening.group_id)",
        ),
        _ONE_TRANSACTION,
        also=(f"{_LANE_PATH_TESTS}::test_refused_record_stops_the_commit",),
    ),
    Mutant(
        "failed-batch-believed",
        "After a failure a lane goes on with what it fetched before, though the broker lost it and filled its offsets.",
        Patch(_LANE, "again = await read_again(opened.cluster, kept)", "again = kept"),
        f"{_LANE_PATH_TESTS}::test_failed_batch_is_read_again",
    ),
    Mutant(
        "closing-cancels",
        "A lane that is closed in the middle of a transaction leaves it to be done again.",
        Patch(_LANE, "_tenure.ended()\n        self._disturb", "_tenure.ended()\n        self._task.cancel"),
        f"{_LANE_PATH_TESTS}::test_closing_finishes_the_transaction",
    ),
    Mutant(
        "gap-accepted",
        "A batch that begins above what comes next is processed, and what lies between is lost.",
        Patch(_CURSOR, ".begin > self.next:\n            start", ".begin > batch.end:\n            start"),
        f"{_LANE_PATH_TESTS}::test_gap_is_refused",
    ),
    Mutant(
        "gap-of-retention-unsaid",
        "Records that retention deleted unprocessed are missing, and nobody is told.",
        Patch(_CURSOR, "                self._say_gap(start)\n", ""),
        f"{_LANE_PATH_TESTS}::test_records_deleted_by_retention_are_a_gap",
    ),
    Mutant(
        "processed-not-trimmed",
        "A batch that reaches back below the offset that comes next repeats records without an ID.",
        Patch(_CURSOR, "return native_records.since(batch.records, self.next)", "return batch.records"),
        f"{_LANE_PATH_TESTS}::test_what_was_processed_is_trimmed",
    ),
    Mutant(
        "input-read-uncommitted",
        "Records that their producer aborted are accepted.",
        Patch("ringfence_kafka/aiokafka_patches/internals.py", '= "read_committed"', '= "read_uncommitted"'),
        "tests/integration/test_transport.py::test_aborted_records_are_bridged",
    ),
    Mutant(
        "partitions-judged-apart",
        "A lane judges each partition by itself: the same ID under another group is accepted again.",
        Patch(
            "agents/decision/decide.py",
            "items = list(map(Item, records, sources, ids, groups, ids, repeat(batch.partition)))",
            'apart = [known and known + b"%d" % batch.partition for known in ids]\n'
            "        items = list(map(Item, records, sources, apart, groups, ids, repeat(batch.partition)))",
        ),
        f"{_UNIT_TESTS}::test_an_id_is_known_in_all_partitions",
    ),
    Mutant(
        "regained-with-former-partitions",
        "A lane whose input has grown keeps its former partitions after the rebalance, and nobody reads the new ones.",
        Patch(
            "agents/lane/open.py",
            "        if given is not None and opened.cursors.keys() != set(given):\n"
            '            raise PartitionsChangedError("the group gave the lane other partitions than before")\n',
            "",
        ),
        f"{_TESTS}::test_corpus_of_fixed_lanes",
    ),
    Mutant(
        "numbers-of-the-batch",
        "_RF_SEQ counts within a transaction, so that it is no order of the lane.",
        Patch("agents/output/sequences.py", "numbers = count(checked.first_sequence)", "numbers = count()"),
        f"{_UNIT_TESTS}::test_sequences_count_accepted_ids",
    ),
    Mutant(
        "one-partition-per-commit",
        "A transaction of several partitions commits the offset of one, and what came in the others is accepted again.",
        Patch(
            "agents/lane/transactions.py",
            "{TopicPartition(topic, partition): end for partition, end in ends.items()}",
            "{TopicPartition(topic, due[0].batch.partition): ends[due[0].batch.partition]}",
        ),
        f"{_TESTS}::test_corpus_of_fixed_lanes",
    ),
    Mutant(
        "leaderless-partition-stops-its-lane",
        "A lane of several partitions does not open while one of them has no leader.",
        Patch(
            "agents/lane/opening/start_offsets.py",
            "if not known or recreated or topic != self._lane.address.input_topic:",
            "if error:",
        ),
        "tests/unit/agents/lane/test_start_offsets.py::test_other_partitions_go_on",
    ),
)
