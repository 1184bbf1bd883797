"""Bugs in what comes before, in and after an attempt at a message."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_SUSPECTS: Final = "ringfence_client/suspects.py"
_ATTEMPTS: Final = "ringfence_client/attempts.py"
_DISPATCHER: Final = "ringfence_client/dispatcher.py"
_HANDLER: Final = "ringfence_client/handler.py"
_LETTERS: Final = "ringfence_client/dead_letters.py"
_BREAKER: Final = "ringfence_client/breaker.py"
_RESIDENT: Final = "ringfence_client/resident.py"
_RETRIES: Final = "ringfence_client/retries.py"
_WRITER: Final = "ringfence_client/writer.py"
_CONSUMER_TESTS: Final = "tests/integration/test_group_consumer.py"
_HANDLER_TESTS: Final = "tests/unit/test_handler.py"
_HANGS: Final = "tests/integration/test_group_hangs.py"
_RETRY_TESTS: Final = "tests/unit/test_retries.py"
_BREAKER_TESTS: Final = "tests/unit/test_breaker.py"
_RESIDENT_TESTS: Final = "tests/unit/test_resident.py"
_SICK_MESSAGES: Final = "tests/integration/test_group_sick_messages.py"
_SICK: Final = "tests/integration/test_group_sick.py"

_WAITING: Final = (
    Mutant(
        "sick-partition-begins-everything",
        "A partition that cannot be written marks all of its messages as begun: a crash makes dead letters of them.",
        (Patch(_DISPATCHER, "(self.concurrency if held.writer.covers() else 1)", "10**9"),),
        f"{_SICK}::test_sick_from_the_start_on",
    ),
    Mutant(
        "begun-under-a-lease-that-may-be-taken",
        "A message is begun although another consumer may have begun it by now.",
        (Patch(_ATTEMPTS, "if unsafe or not held.writer.covers():", "if unsafe:"),),
        f"{_SICK}::test_sick_from_the_start_on",
    ),
    Mutant(
        "suspects-tried-together",
        "Innocent messages become dead letters with the one that kills its process.",
        (Patch(_SUSPECTS, "due and not self._alone and", "due and"),),
        "tests/integration/test_group_lease.py::test_last_attempts_of_suspects",
    ),
    Mutant(
        "last-attempt-beside-a-lesser-suspect",
        "One that kills its process, and of which a death is not known, takes an innocent message with it for good.",
        (Patch(_SUSPECTS, "due and not self._alone and", "due and not any(self._alone.values()) and"),),
        "tests/integration/test_group_lease.py::test_last_attempts_of_suspects",
    ),
    Mutant(
        "a-hung-last-attempt-holds-up-all",
        "After a crash one message that hangs stops its partition.",
        (Patch(_SUSPECTS, ".call_later(ISOLATION_S, outlived)", ".call_later(3_600, outlived)"),),
        "tests/integration/test_group_lease.py::test_a_hung_last_attempt_holds_up_nobody",
    ),
    Mutant(
        "blamed-for-the-one-beside-it",
        "A message whose last attempt ran beside one that hung becomes a dead letter when the process dies.",
        (Patch(_SUSPECTS, "turn.counted = not (last and self._unended)", "turn.counted = True"),),
        "tests/integration/test_group_lease.py::test_a_hung_last_attempt_holds_up_nobody",
    ),
)

_DEAD_LETTERS: Final = (
    Mutant(
        "dead-letter-lost-in-the-making",
        "A message counts as finished, and the dead letter that should tell of it was never written.",
        (
            Patch(
                _WRITER,
                "burying=frozenset(each.offset for each in letters if",
                "burying=frozenset(each.offset for each in self.letters._pending if",
            ),
        ),
        f"{_SICK}::test_dead_letters_refused",
    ),
    Mutant(
        "dead-letters-hold-up-the-progress",
        "A missing dead-letter topic stops its whole partition.",
        (
            Patch(
                _LETTERS,
                "self._under_way = () if resting else tuple(self._first())",
                "self._under_way = tuple(self._first())",
            ),
        ),
        f"{_SICK}::test_dead_letters_refused",
    ),
    Mutant(
        "dead-letter-topic-never-looked-at",
        "A dead-letter topic that was deleted is missed until the consumer is started again.",
        (
            Patch(
                _LETTERS,
                "                await self._dead_letters.renew()\n",
                "                await asyncio.sleep(0)\n",
            ),
        ),
        f"{_SICK}::test_dead_letter_topic_deleted",
    ),
    Mutant(
        "reason-must-be-text",
        "A reason that quotes broken text keeps a whole partition from ever writing its progress.",
        (Patch(_ATTEMPTS, 'shortened(reason).encode(errors="backslashreplace").decode()', "reason"),),
        f"{_CONSUMER_TESTS}::test_reason_that_is_no_text",
    ),
)

_GIVING_UP: Final = (
    Mutant(
        "given-up-in-an-outage",
        "A database that is away for a while empties the topic into the dead letters.",
        (
            Patch(
                _ATTEMPTS,
                "if self._policy.exhausted(attempt) and not self._breaker.open:",
                "if self._policy.exhausted(attempt):",
            ),
        ),
        f"{_HANGS}::test_nothing_is_given_up_in_an_outage",
    ),
    Mutant(
        "full-speed-in-an-outage",
        "While nothing succeeds everything is tried again and again.",
        (
            Patch(
                _BREAKER,
                "return not self._limit or (running < self._limit and now >= self._next_at)",
                "return True",
            ),
        ),
        f"{_BREAKER_TESTS}::test_opens_when_everything_fails",
        (f"{_HANGS}::test_outage",),
    ),
    Mutant(
        "retries-open-the-breaker",
        "Messages that always fail slow the whole consumer down.",
        (
            Patch(_BREAKER, "self._run += first", "self._run += 1"),
            Patch(_BREAKER, "not first or self._run", "self._run"),
        ),
        f"{_BREAKER_TESTS}::test_retries_do_not_open_it",
    ),
    Mutant(
        "sick-share-is-not-learned",
        "Where nine of ten messages fail the breaker opens again and again.",
        (Patch(_BREAKER, "math.ceil(math.log(CHANCE) / math.log(self._share))", "RUN_MIN"),),
        f"{_BREAKER_TESTS}::test_sick_messages_are_no_outage",
    ),
    Mutant(
        "retries-take-all-slots",
        "Healthy groups wait until groups that fail for ever leave a slot.",
        (Patch(_DISPATCHER, "max(1, options.concurrency // 2)", "options.concurrency"),),
        f"{_SICK_MESSAGES}::test_retries_have_half_of_the_slots",
    ),
    Mutant(
        "predecessors-failures-are-fresh",
        "After a takeover the oldest messages come first, and with them all that fail for ever.",
        (Patch(_DISPATCHER, "                if not turn.has_failed:\n", "                if True:\n"),),
        f"{_SICK_MESSAGES}::test_restarts_do_not_shorten_the_retry_time",
    ),
    Mutant(
        "waiting-groups-fill-the-window",
        "A few thousand groups that wait keep every other group out of memory.",
        (
            Patch(
                _RESIDENT,
                "(self._room(group, share) or self._make_room(group, share))",
                "self._room(group, share)",
            ),
        ),
        f"{_RESIDENT_TESTS}::test_what_waits_makes_room_for_fresh_groups",
    ),
    Mutant(
        "count-alone",
        "A message is given up seconds after it failed first, while what it needs restarts.",
        (Patch(_RETRIES, "return max(0.0, self.retry_time - passed)", "return 0.0"),),
        f"{_RETRY_TESTS}::test_a_new_holder_keeps_the_retry_time",
    ),
    Mutant(
        "clock-behind-tries-for-ever",
        "A consumer whose clock is behind tries a message that always fails until its clock has come to where another's was.",
        (Patch(_RETRIES, "max(0, now_ms - failures.since_ms)", "(now_ms - failures.since_ms)"),),
        f"{_RETRY_TESTS}::test_a_new_holder_keeps_the_retry_time",
    ),
    Mutant(
        "restarts-count-as-deaths",
        "A message that waited for its next attempt becomes a dead letter when its consumer is restarted.",
        (
            Patch(
                _RETRIES,
                "return attempts - (failures.attempts if failures is not None else 0)",
                "return attempts",
            ),
        ),
        f"{_RETRY_TESTS}::test_what_failed_did_not_kill",
    ),
)

_ENDING: Final = (
    Mutant(
        "generator-acknowledges-everything",
        "A handler with a yield in it acknowledges every message, and nothing of it ever runs.",
        (Patch(_HANDLER, "inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)", "False"),),
        f"{_HANDLER_TESTS}::test_cannot_be_one",
        (f"{_HANGS}::test_checked_before_anything_runs",),
    ),
    Mutant(
        "returned-coroutine-is-forgotten",
        "A plain function around a coroutine function acknowledges every message, and nothing ever runs.",
        (Patch(_HANDLER, "return result if inspect.isawaitable(result) else None", "return None"),),
        f"{_HANDLER_TESTS}::test_what_is_returned_is_awaited",
    ),
    Mutant(
        "hung-thread-keeps-its-place",
        "Each handler that hangs in a thread leaves one fewer for the others, until nothing runs.",
        (
            Patch(
                _HANDLER, "                    self._pool = self._new_pool()\n", "                    pass\n"
            ),
        ),
        f"{_HANGS}::test_time_limit_of_threads",
    ),
    Mutant(
        "stubborn-handler-keeps-its-slot",
        "A handler that goes on when it is cancelled holds a place for ever.",
        (Patch(_DISPATCHER, "            self._leave_behind(task, turn)\n\n", "            pass\n\n"),),
        f"{_HANGS}::test_time_limit[stubborn]",
    ),
    Mutant(
        "outlived-and-tried-for-ever",
        "A message whose handler goes on when its time is over is never given up: its group waits for ever.",
        (
            Patch(
                _ATTEMPTS,
                "self.wait_for_left(turn, left, lambda: self._again(turn, record, attempt, reason, error))",
                "self.wait_for_left(turn, left)",
            ),
        ),
        "tests/simulation/test_schedules.py::test_corpus[consumers]",
    ),
    Mutant(
        "half-done-counts-as-done",
        "A handler that swallows its cancellation and returns acknowledges what it left out.",
        (
            Patch(
                _ATTEMPTS,
                "if turn.cut_short and (error is not None or not self._runs.in_threads):",
                "if turn.cut_short and error is not None:",
            ),
        ),
        f"{_HANGS}::test_cancelled_and_returned",
    ),
)

_MANY_LETTERS: Final = (
    Mutant(
        "put-back-with-its-letter-on-its-way",
        "A message whose dead letter is not written yet is handled once more, and has two letters, where its partition comes back.",
        (
            Patch(
                "ringfence_client/turns.py",
                "            if turn in self._kept:\n                continue\n",
                "",
            ),
        ),
        "tests/simulation/test_consumers.py::test_comes_back_while_a_letter_is_on_its_way",
    ),
    Mutant(
        "all-letters-at-once",
        "More dead letters than can be written in the time of a transaction are tried together for ever.",
        (Patch(_LETTERS, "in self._pending[: self._most]:", "in self._pending:"),),
        "tests/unit/test_dead_letters.py::test_however_many_wait",
    ),
    Mutant(
        "a-letter-a-batch",
        "Each dead letter is a round trip to the broker.",
        (
            Patch(
                "ringfence_client/dead_letters.py", "if alone.builder.size() <= room and ", "if not room and "
            ),
        ),
        "tests/unit/test_dead_letters.py::test_those_of_a_partition_go_together",
    ),
)

_SKIPPED: Final = (
    Mutant(
        "skipped-and-nobody-woken",
        "The group of a message that is skipped while nothing can be written waits until some other message comes.",
        (
            Patch(
                "ringfence_client/attempts.py",
                "            if turn not in self._resting:\n                self._resting.passed()",
                "            if turn is None:\n                self._resting.passed()",
            ),
        ),
        f"{_SICK}::test_skipped_once_however_often_it_is_asked",
    ),
    Mutant(
        "skips-whatever-is-first",
        "Who is told to run a skip again, because its answer came late, drops a message that nobody ever tried.",
        (Patch("ringfence_client/web.py", "and before[:1] != [head]\n", "and head is None\n"),),
        f"{_SICK}::test_skipped_once_however_often_it_is_asked",
    ),
)

_LEADERS: Final = (
    Mutant(
        "no-leader-is-a-doubt",
        "One partition without a leader stops all that a process has.",
        (
            Patch(
                "ringfence_kafka/doubt.py", "and self._leaderless <= before", "and self._leaderless < before"
            ),
        ),
        "tests/faults/test_leaderless.py::test_bridge_goes_on_with_the_others",
    ),
)

MUTANTS: Final = (*_WAITING, *_DEAD_LETTERS, *_GIVING_UP, *_ENDING, *_MANY_LETTERS, *_SKIPPED, *_LEADERS)
