"""Bugs in how a consumer opens a partition, keeps it and gives it away: lease, fence, token, start position."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_LEASE: Final = "ringfence_client/progress/lease.py"
_LEASE_ACQUISITION: Final = "ringfence_client/partition/lease_acquisition.py"
_LATEST: Final = "ringfence_kafka/readers/compacted_topic.py"
_GROUP_LEASE_TESTS: Final = "tests/integration/test_lease_takeover.py"
_GROUP_RECREATED_TESTS: Final = "tests/integration/test_no_loss_recreated_topics.py"
_LEASE_TESTS: Final = "tests/unit/ringfence_client/progress/test_lease.py"
_CLAIM: Final = "ringfence_client/consumer/partition_task.py"
_SCHEDULE: Final = "ringfence_client/partition/write_schedule.py"
_GROUP_STORM_TESTS: Final = "tests/integration/test_lease_rebalances.py"

MUTANTS: Final = (
    Mutant(
        "no-fence-between-holders",
        "A holder that wakes up too late writes over its successor.",
        Patch(_LEASE_ACQUISITION, ".topic, lease.partition)", ".topic, lease.partition) + lease.holder"),
        f"{_GROUP_LEASE_TESTS}::test_late_write_is_refused",
    ),
    Mutant(
        "lease-not-read-after-the-fence",
        "What the former holder acknowledged last is done again.",
        (
            Patch(_LEASE_ACQUISITION, "async with self.", "early = await look()\n        async with self."),
            Patch(_LEASE_ACQUISITION, "return producer, await look()", "return producer, early"),
        ),
        f"{_GROUP_LEASE_TESTS}::test_read_again_after_the_fence",
    ),
    Mutant(
        "waiter-by-the-wall-clock",
        "Somebody sets the clock, and a partition is taken from who is at work.",
        (
            Patch(_LEASE_ACQUISITION, "begun = clock.now()", "begun = clock.time.time()"),
            Patch(_LEASE_ACQUISITION, "now = clock.now()", "now = clock.time.time()"),
        ),
        f"{_GROUP_LEASE_TESTS}::test_silent_holder[running]",
    ),
    Mutant(
        "idle-time-out-while-something-runs",
        "A holder in a slow message loses its partition, and the message is done twice at once.",
        Patch(_LEASE, "self._timeout if recorded.running else self._idle", "self._idle"),
        f"{_LEASE_TESTS}::test_silence",
        also=(f"{_GROUP_LEASE_TESTS}::test_silent_holder[running]",),
    ),
    Mutant(
        "silence-from-the-beginning-of-reading",
        "A newcomer that reads slowly takes a partition whose holder wrote a moment ago.",
        Patch(_LEASE, "self._seen, self.since = recorded, asked", "self._seen, self.since = recorded, begun"),
        f"{_LEASE_TESTS}::test_reading_that_takes_long",
    ),
    Mutant(
        "newer-than-it-says",
        "A record that came after it was known up to where to read counts as one of before, and its writer as silent since then.",
        (
            Patch(
                _LATEST,
                ".apply_records([record for record in records if record.offset < end])",
                ".apply_records(records)",
            ),
            Patch(_LATEST, "time.monotonic(), min(reached, end)", "time.monotonic(), reached"),
        ),
        "tests/integration/test_log_readers.py::test_open_transaction_is_waited_for",
    ),
    Mutant(
        "fence-after-a-queue",
        "A newcomer that queued for its turn fences a holder that woke and wrote meanwhile.",
        Patch(_LEASE_ACQUISITION, "if clock.now() > looked_at + FRESH_S:", "if clock.now() > math.inf:"),
        f"{_GROUP_LEASE_TESTS}::test_written_while_one_waits_for_a_turn",
    ),
    Mutant(
        "renewed-before-the-fence",
        "A holder that wakes and writes between a newcomer's last look and its fence loses what it has just begun.",
        Patch(_LEASE_ACQUISITION, "if left:", "if left < 0:"),
        f"{_GROUP_LEASE_TESTS}::test_renewed_before_the_fence",
    ),
    Mutant(
        "waits-anew-after-each-rebalance",
        "A dead holder's partition is never taken while members come and go more often than its lease lasts.",
        Patch(_LEASE_ACQUISITION, "lease.key, LeaseWatch(", "lease.holder.encode(), LeaseWatch("),
        f"{_GROUP_LEASE_TESTS}::test_rebalances_while_one_waits",
    ),
    Mutant(
        "token-stays",
        "A store cannot tell the late effect of a former holder from one of the present.",
        Patch(
            _LEASE_ACQUISITION,
            "token = 1 + (predecessor.token if predecessor is not None else 0)",
            "token = predecessor.token if predecessor is not None else 1",
        ),
        f"{_GROUP_LEASE_TESTS}::test_released_while_one_waits",
    ),
    Mutant(
        "another-topic-of-the-name",
        "An accepted topic is created again, and the first messages of the new one count as finished.",
        Patch("ringfence_client/progress/resume_offset.py", ".topic_id != log.topic_id", ".topic_id is None"),
        "tests/unit/ringfence_client/progress/test_resume_offset.py::test_another_topic",
        also=(f"{_GROUP_RECREATED_TESTS}::test_between_two_runs",),
    ),
    Mutant(
        "topic-not-watched",
        "A topic is created again beneath a consumer, which goes on at the old position.",
        Patch(
            "ringfence_client/consumer/partitions.py",
            "if partition.lease.topic_id != identity.topic_id and",
            "if not partition.lease.topic_id and",
        ),
        f"{_GROUP_RECREATED_TESTS}::test_beneath_a_consumer[300]",
    ),
    Mutant(
        "lease-not-written-again",
        "The progress topic is created again beneath a consumer: its partition is anybody's, under a token that was there before.",
        Patch(
            "ringfence_client/consumer/consumer.py",
            "            self.held_partitions.write_again()\n",
            "",
        ),
        f"{_GROUP_RECREATED_TESTS}::test_progress_topic[8]",
    ),
    Mutant(
        "consumers-offsets-followed",
        "Handlers skip what a foreign consumer read while none of ours ran.",
        Patch("ringfence_kafka/groups/trusted_offsets.py", " or committed.leader_epoch != NO_EPOCH", ""),
        "tests/unit/ringfence_kafka/groups/test_trusted_offsets.py::test_own_commits_have_no_epoch",
        also=(
            "tests/integration/test_foreign_groups.py::test_a_foreign_consumer_that_came_and_went[consumer]",
        ),
    ),
    Mutant(
        "impostors-get-partitions",
        "A member with the name of our assignor gets partitions, and handlers never see their messages.",
        Patch("ringfence_client/consumer/assignor.py", ' and is_ours(topic, item.user_data or b"")', ""),
        "tests/unit/ringfence_client/consumer/test_group_terms.py::test_a_foreign_member_gets_nothing",
    ),
    Mutant(
        "begun-whether-covered-or-not",
        "After a rest a message is begun under a lease that somebody takes at that moment.",
        Patch(_SCHEDULE, "return clock.now() < self._covered_until", "return True"),
        "tests/integration/test_lease_takeover.py::test_holder_that_cannot_write",
    ),
    Mutant(
        "no-refresh",
        "Who is long in one message says nothing, and is taken for dead.",
        Patch(_SCHEDULE, "= self._written_at + REFRESH_S - clock.now() if running else None", "= None"),
        f"{_GROUP_STORM_TESTS}::test_one_refresh_a_second",
    ),
    Mutant(
        "acknowledged-in-vain-while-draining",
        "What was in the works at a handover is done again by the next holder.",
        Patch("ringfence_client/dispatch/attempt.py", ".window.closed and turn.", ".draining and turn."),
        f"{_GROUP_STORM_TESTS}::test_acknowledged_while_draining[undisturbed]",
    ),
    Mutant(
        "resumed-without-a-write",
        "Who was fenced in a rebalance goes on when it is over, beside the one who fenced it.",
        Patch(_CLAIM, "await held.writer.persisted()", "await asyncio.sleep(0)"),
        f"{_GROUP_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "released-while-a-handler-runs",
        "What outlives the drain time-out is run beside itself by whoever takes the released partition.",
        Patch(_CLAIM, "CLOSE_LIMIT_S, released=ended)", "CLOSE_LIMIT_S, released=True)"),
        "tests/integration/test_consumer_membership.py::test_left_behind_at_the_end",
    ),
    Mutant(
        "fenced-back-whoever-has-it",
        "A holder whose lease was taken takes it back in the middle of its successor's messages.",
        Patch(
            "ringfence_client/partition/lease_acquisition.py",
            "if progress is not None and progress.holder != lease.holder and progress != predecessor:",
            "if progress is not None and progress.holder == '':",
        ),
        f"{_GROUP_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "revoked-and-handed-out",
        "While the group decides, messages are begun of what may be another's in a moment.",
        Patch(_CLAIM, "_suspend()\n        self._disturb()\n\n    async def", "_disturb()\n\n    async def"),
        "tests/property/test_claims.py::test_histories",
    ),
)
