"""Bugs in who may hold a partition, and in what goes from one holder to the next."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_CLOCK: Final = "ringfence_kafka/clock.py"
_CONSUMER: Final = "ringfence_client/consumer.py"
_DISPATCHER: Final = "ringfence_client/dispatcher.py"
_CLAIM: Final = "ringfence_client/claim.py"
_TENANT: Final = "ringfence_kafka/tenant.py"
_TENURE: Final = "ringfence_kafka/tenure.py"
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
                "        async with self._clients.turns:\n",
                "        early = await look()\n        async with self._clients.turns:\n",
            ),
            Patch(
                _OPENING,
                "            return producer, await look()\n",
                "            return producer, early\n",
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
                "if clock.now() > looked_at + FRESH_S:",
                "if clock.now() > math.inf:",
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
                _CLAIM,
                "        await held.writer.persisted()\n        self._flow(held.window.end)",
                "        await asyncio.sleep(0)\n        self._flow(held.window.end)",
            ),
        ),
        f"{_STORM_TESTS}::test_taken_while_suspended",
    ),
    Mutant(
        "released-while-a-handler-runs",
        "What outlives the drain time-out is run beside itself by whoever takes the released partition.",
        (Patch(_CLAIM, "CLOSE_LIMIT_S, released=ended)", "CLOSE_LIMIT_S, released=True)"),),
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

_TENURE_TESTS: Final = "tests/unit/test_tenure.py"
_TENANT_TESTS: Final = "tests/unit/test_tenant.py"
_CLAIM_TESTS: Final = "tests/property/test_claims.py::test_histories"

_GIVING_UP: Final = (
    Mutant(
        "given-away-and-gone-on-with",
        "A partition that comes back when its last handler has just ended goes on with a window that is closed.",
        (Patch(_TENURE, "        self._way_out = Step.CLOSE\n", "        self._way_out = None\n"),),
        f"{_TENURE_TESTS}::test_comes_back_too_late",
        (f"{_TENURE_TESTS}::test_competing_consumers",),
    ),
    Mutant(
        "broken-and-gone-on-with",
        "What an internal error left behind is gone on with, or never opened anew.",
        (Patch(_TENURE, "        self._way_out = self._way_out or Step.DRAIN\n", ""),),
        f"{_TENURE_TESTS}::test_broken_never_goes_on",
        ("tests/integration/test_group_rebalance.py::test_failed_and_regained[meanwhile]",),
    ),
    Mutant(
        "ended-when-its-time-is-up",
        "What a handler finishes in the moment in which its time to drain is up is done again, although its lease was never another's.",
        (
            Patch(
                _CLAIM,
                "        await self._ours.dispatcher.drain(held, self._ours.drain_timeout)\n",
                "        await self._ours.dispatcher.drain(held, self._ours.drain_timeout)\n        held.lose()\n",
            ),
        ),
        "tests/simulation/test_consumers.py::test_ends_as_its_time_is_up",
    ),
    Mutant(
        "lost-as-it-drains",
        "Who has to write again as a rebalance comes says nothing: the next one waits for the lease to run out, and does finished messages again.",
        (
            Patch(
                _OPENING,
                "            except NotOwnerError:\n                if not draining():\n                    await look_soon()\n                    raise\n",
                "            except NotOwnerError as error:\n                raise LostError(str(error)) from error\n",
            ),
        ),
        "tests/simulation/test_consumers.py::test_goes_to_another_as_it_is_taken_back",
    ),
    Mutant(
        "lost-as-it-is-put-out",
        "Who has been put out of the group, and asks whose the lease is before its client was told, drops what runs, and says nothing.",
        (
            Patch(
                _OPENING,
                "                    await look_soon()\n                    raise\n",
                "                    raise LostError(lease) from None\n",
            ),
        ),
        "tests/integration/test_group_storm.py::test_put_out_and_not_told",
    ),
    Mutant(
        "waits-for-its-own-transaction",
        "Who does not know whether its last write has ended reads behind it until brokers give it up; meanwhile its lease runs out, or its time to close.",
        (
            Patch(
                _OPENING,
                "            with contextlib.suppress(TimeoutError):\n                async with asyncio.timeout(LAST_LOOK_S):\n                    await look()\n",
                "            await look()\n",
            ),
        ),
        "tests/simulation/test_consumers.py::test_its_own_transaction_is_open",
    ),
    Mutant(
        "asked-by-the-generation-before",
        "A lease that comes back while its holder asks whose it is is lost, and what it has finished is done again.",
        (
            Patch(
                _CLAIM,
                "                if self._tenure.latest is latest:\n",
                "                if self._tenure.latest:\n",
            ),
        ),
        "tests/property/test_claims.py::test_asked_in_one_generation_and_given_in_the_next",
    ),
    Mutant(
        "lost-and-drained",
        "What somebody has taken is waited for as long as handlers may take, beside who runs it now.",
        (
            Patch(
                _TENURE, "            self._way_out = Step.DROP\n", "            self._way_out = Step.DRAIN\n"
            ),
        ),
        f"{_TENURE_TESTS}::test_lost_is_dropped",
    ),
    Mutant(
        "revoked-and-handed-out",
        "While the group decides, messages are begun of what may be another's in a moment.",
        (
            Patch(
                _CLAIM,
                "        self._suspend()\n        self._disturb()\n\n    async def standing",
                "        self._disturb()\n\n    async def standing",
            ),
        ),
        _CLAIM_TESTS,
    ),
    Mutant(
        "joined-while-something-is-opened",
        "A consumer joins again while it takes a lease, which nobody then waits for it to give back.",
        (
            Patch(
                "ringfence_client/held_partitions.py",
                "asyncio.gather(*(each.standing() for each in self._claims.values()))",
                "asyncio.sleep(0)",
            ),
        ),
        _CLAIM_TESTS,
    ),
    Mutant(
        "cleaning-up-is-cancelled",
        "An opening that is ended twice leaves its producer and its lease behind.",
        (Patch(_TENANT, "if not due and not task.cancelling():", "if not due:"),),
        f"{_TENANT_TESTS}::test_cleaning_up_is_not_disturbed",
    ),
    Mutant(
        "opened-under-an-old-right",
        "An opening goes on by an assignment that another one has followed.",
        (Patch(_TENANT, "(doing is Step.DRAIN or right is self._tenure.right)", "(doing is not None)"),),
        f"{_TENANT_TESTS}::test_newer_right_has_an_opening_begin_anew",
        harmless="between two assignments both lanes and consumers are told that the first is gone, which ends the opening",
    ),
    Mutant(
        "drained-anew-in-each-rebalance",
        "Members that come and go keep a handler that hangs from ever being ended.",
        (
            Patch(
                _TENANT, "(doing is Step.DRAIN or right is self._tenure.right)", "right is self._tenure.right"
            ),
        ),
        f"{_TENANT_TESTS}::test_drained_over_another_rebalance",
    ),
)

MUTANTS: Final = (*_TAKING, *_HOLDING, *_LEAVING, *_GIVING_UP)
