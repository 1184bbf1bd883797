"""Bugs in who may hold a partition, and in what goes from one holder to the next."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_CLOCK: Final = "ringfence_kafka/clock.py"
_CONSUMER: Final = "ringfence_client/consumer.py"
_DISPATCHER: Final = "ringfence_client/dispatcher.py"
_HOLDINGS: Final = "ringfence_client/held_partitions.py"
_LATEST: Final = "ringfence_kafka/latest.py"
_LEASE: Final = "ringfence_client/lease.py"
_OPENING: Final = "ringfence_client/lease_acquisition.py"
_WRITER: Final = "ringfence_client/writer.py"
_LATEST_TESTS: Final = "tests/integration/test_latest.py"
_LEASE_RULES: Final = "tests/unit/test_lease.py"
_LEASE_TESTS: Final = "tests/integration/test_group_lease.py"
_STORM_TESTS: Final = "tests/integration/test_group_storm.py"

_TAKING: Final = (
    Mutant(
        "no-fence-between-holders",
        "A holder that wakes up too late writes over its successor.",
        (
            Patch(
                _OPENING,
                "wire.consumer_transactional_id(self._app_id, lease.group, lease.topic, lease.partition)",
                "wire.consumer_transactional_id(self._app_id, lease.group, lease.topic, lease.partition) + "
                "lease.holder",
            ),
        ),
        f"{_LEASE_TESTS}::test_late_write_is_refused",
    ),
    Mutant(
        "lease-not-read-after-the-fence",
        "What the former holder acknowledged last is done again.",
        (
            Patch(
                _OPENING,
                "        async with self._clients.turn() as queue:\n            if queue and not",
                "        left, predecessor = await self._look(lease, watch)\n"
                "        async with self._clients.turn() as queue:\n            if queue and not",
            ),
            Patch(
                _OPENING,
                "            left, predecessor = await self._look(lease, watch)\n        except",
                "            pass\n        except",
            ),
        ),
        f"{_LEASE_TESTS}::test_read_again_after_the_fence",
    ),
    Mutant(
        "waiter-by-the-wall-clock",
        "Somebody sets the clock, and a partition is taken from who is at work.",
        (
            Patch(_OPENING, "begun = clock.now()", "begun = clock.time.time()"),
            Patch(_OPENING, "now = clock.now()", "now = clock.time.time()"),
        ),
        f"{_LEASE_TESTS}::test_silent_holder[running]",
    ),
    Mutant(
        "idle-time-out-while-something-runs",
        "A holder in a slow message loses its partition, and the message is done twice at once.",
        (Patch(_LEASE, "self._timeout if recorded.running else self._idle", "self._idle"),),
        f"{_LEASE_RULES}::test_silence",
        (f"{_LEASE_TESTS}::test_silent_holder[running]",),
    ),
    Mutant(
        "silence-from-the-beginning-of-reading",
        "A newcomer that reads slowly takes a partition whose holder wrote a moment ago.",
        (
            Patch(
                _LEASE, "self._seen, self.since = recorded, asked", "self._seen, self.since = recorded, begun"
            ),
        ),
        f"{_LEASE_RULES}::test_reading_that_takes_long",
    ),
    Mutant(
        "lease-of-a-topic-that-was-recreated",
        "What was read of a progress topic is believed, although the topic is another one by now.",
        (Patch(_LATEST, "if not records or not _same(records[0], witness):", "if not records:"),),
        f"{_LATEST_TESTS}::test_recreated_topic",
    ),
    Mutant(
        "newer-than-it-says",
        "A record that came after it was known up to where to read counts as one of before, and its writer as silent since then.",
        (
            Patch(
                _LATEST, "known.take([each for each in records if each.offset < end])", "known.take(records)"
            ),
            Patch(_LATEST, "time.monotonic(), min(reached, end)", "time.monotonic(), reached"),
        ),
        f"{_LATEST_TESTS}::test_open_transaction_is_waited_for",
    ),
    Mutant(
        "fence-after-a-queue",
        "A newcomer that queued for its turn fences a holder that woke and wrote meanwhile.",
        (
            Patch(
                _OPENING,
                "if queue and not await self._still_free(lease, watch):",
                "if queue and not queue:",
            ),
        ),
        f"{_LEASE_TESTS}::test_written_while_one_waits_for_a_turn",
    ),
    Mutant(
        "renewed-before-the-fence",
        "A holder that wakes and writes between a newcomer's last look and its fence loses what it has just begun.",
        (Patch(_OPENING, "        if left:\n            log", "        if left < 0:\n            log"),),
        f"{_LEASE_TESTS}::test_renewed_before_the_fence",
    ),
    Mutant(
        "waits-anew-after-each-rebalance",
        "A dead holder's partition is never taken while members come and go more often than its lease lasts.",
        (
            Patch(
                _OPENING,
                "            lease.key, LeaseWatch(",
                "            lease.holder.encode(), LeaseWatch(",
            ),
        ),
        f"{_LEASE_TESTS}::test_rebalances_while_one_waits",
    ),
    Mutant(
        "leases-shorter-by-a-transaction",
        "A reading that was held up counts as silence from its beginning, though its end was not known yet.",
        (
            Patch(
                _LATEST,
                "            start, end = await asyncio.gather(\n",
                "            asked_at = clock.now() - 60\n            start, end = await asyncio.gather(\n",
            ),
            Patch(
                _LATEST,
                "            asked_at = clock.now()\n            # Taken out",
                "            # Taken out",
            ),
        ),
        f"{_LATEST_TESTS}::test_open_transaction_is_waited_for",
    ),
    Mutant(
        "token-stays",
        "A store cannot tell the late effect of a former holder from one of the present.",
        (
            Patch(
                _OPENING,
                "token = 1 + (predecessor.token if predecessor is not None else 0)",
                "token = predecessor.token if predecessor is not None else 1",
            ),
        ),
        f"{_LEASE_TESTS}::test_released_while_one_waits",
    ),
)

_HOLDING: Final = (
    Mutant(
        "begun-whether-covered-or-not",
        "After a rest a message is begun under a lease that somebody takes at that moment.",
        (Patch(_WRITER, "return clock.now() < self._covered_until", "return True"),),
        "tests/integration/test_group_holder.py::test_holder_that_cannot_write",
    ),
    Mutant(
        "holder-by-the-wall-clock",
        "Somebody sets the clock back, and a holder that cannot write goes on when its partition is another's.",
        (
            Patch(
                _WRITER,
                "return clock.now() < self._covered_until",
                "return clock.time.time() < self._covered_until",
            ),
            Patch(
                _WRITER,
                "self._window, self._lease, clock.now()",
                "self._window, self._lease, clock.time.time()",
            ),
        ),
        "tests/integration/test_group_holder.py::test_holder_that_cannot_write",
    ),
    Mutant(
        "clock-that-sleeps",
        "A machine sleeps for hours, wakes, and begins messages under a lease that somebody took meanwhile.",
        (Patch(_CLOCK, "if boot_time is None else time.clock_gettime(boot_time)", ""),),
        "tests/unit/test_clock.py::test_goes_on_while_the_machine_sleeps",
    ),
    Mutant(
        "no-refresh",
        "Who is long in one message says nothing, and is taken for dead.",
        (
            Patch(
                _WRITER,
                "left = self._written_at + REFRESH_S - clock.now() if self._window.running else None",
                "left = None",
            ),
        ),
        f"{_STORM_TESTS}::test_one_refresh_a_second",
    ),
    Mutant(
        "beat-stands-still",
        "A refresh looks like the record before it, and its writer is taken for dead.",
        (Patch(_WRITER, "        self._beat += 1\n", ""),),
        f"{_STORM_TESTS}::test_one_refresh_a_second",
    ),
    Mutant(
        "plain-commit-beside-the-transaction",
        "A commit that knows no fence sets the group's offset back, or past what is unfinished.",
        (Patch(_CONSUMER, '"enable_auto_commit": False', '"enable_auto_commit": True'),),
        "tests/integration/test_group_progress.py::test_transactions_alone_commit",
    ),
)

_LEAVING: Final = (
    Mutant(
        "acknowledged-in-vain-while-draining",
        "What was in the works at a handover is done again by the next holder.",
        (
            Patch(
                "ringfence_client/attempts.py",
                "if not turn.held.window.closed and turn.offsets:",
                "if not turn.held.draining and turn.offsets:",
            ),
        ),
        f"{_STORM_TESTS}::test_acknowledged_while_draining[undisturbed]",
    ),
    Mutant(
        "resumed-without-a-write",
        "Who was fenced in a rebalance goes on when it is over, beside the one who fenced it.",
        (
            Patch(
                _HOLDINGS,
                "            await held.writer.persisted()\n        except LostError:\n            return False",
                "            await asyncio.sleep(0)\n        except LostError:\n            return False",
            ),
        ),
        f"{_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "released-while-a-handler-runs",
        "What outlives the drain time-out is run beside itself by whoever takes the released partition.",
        (Patch(_HOLDINGS, "CLOSE_LIMIT_S, released=ended)", "CLOSE_LIMIT_S, released=True)"),),
        "tests/integration/test_group_end.py::test_left_behind_at_the_end",
    ),
    Mutant(
        "fenced-back-whoever-has-it",
        "A holder whose lease was taken takes it back in the middle of its successor's messages.",
        (
            Patch(
                _OPENING,
                "if progress is not None and progress.holder != lease.holder and progress != predecessor:",
                "if progress is not None and progress.holder == '':",
            ),
        ),
        f"{_STORM_TESTS}::test_taken_while_suspended",
    ),
)

_GIVING_UP: Final = ()

MUTANTS: Final = (*_TAKING, *_HOLDING, *_LEAVING, *_GIVING_UP)
