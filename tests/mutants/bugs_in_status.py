"""Bugs in what an operator is told: what stands is passed over, or what passes by itself wakes somebody."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_FINDINGS: Final = "app/status/findings.py"
_TESTS: Final = "tests/unit/test_status.py"

MUTANTS: Final = (
    Mutant(
        "status-unheard-lanes-are-none",
        "A worker without a web server looks as if none of its lanes were open.",
        (
            Patch(
                "app/status/wording.py",
                'known = str(up) if not unheard else f"≥{up}" if up else "?"',
                "known = str(up)",
            ),
        ),
        f"{_TESTS}::test_lanes_of_a_silent_worker",
    ),
    Mutant(
        "status-no-worker-unseen",
        "No worker runs, and status says that all is ok.",
        (
            Patch(
                _FINDINGS, "if not status.workers and not rebalancing:", "if status.workers and rebalancing:"
            ),
        ),
        f"{_TESTS}::test_no_worker",
    ),
    Mutant(
        "status-rebalance-wakes-somebody",
        "Each rebalance is told as lanes that nobody has.",
        (
            Patch(
                _FINDINGS,
                'if status.workers and "Rebalance" not in status.workers_state:',
                "if status.workers:",
            ),
        ),
        f"{_TESTS}::test_rebalance",
    ),
    Mutant(
        "status-failing-never-stands",
        "A group that fails for hours is a note for ever.",
        (
            Patch(
                "app/status/consumer_findings.py", "stands=share.failing_seconds > PASSES_S", "stands=False"
            ),
        ),
        f"{_TESTS}::test_failing",
    ),
    Mutant(
        "status-finished-messages-wait",
        "What a consumer has finished out of order is named as waiting.",
        (Patch("app/verbs/consumers.py", "return lag - finished + len(progress.again)", "return lag"),),
        "tests/integration/test_status_waiting.py::test_finished_messages_do_not_wait",
    ),
    Mutant(
        "status-disk-told-by-lane",
        "A full disk under a thousand lanes is a thousand things to act on.",
        (Patch(_FINDINGS, "    if lane.folder_fault:\n", "    if not reason:\n"),),
        "tests/unit/test_status_causes.py::test_one_disk_is_one_problem",
    ),
    Mutant(
        "status-lanes-in-memory-stand",
        "A worker whose lanes work in memory wakes somebody.",
        (Patch(_FINDINGS, "bool(waits) or not worker.lanes_in_memory", "True"),),
        "tests/unit/test_status_causes.py::test_lanes_in_memory",
    ),
    Mutant(
        "status-refused-lane-passes-by-itself",
        "A lane that waits for somebody is told as one that is about to open.",
        (Patch(_FINDINGS, 'elif lane.state == "refused":', 'elif lane.state == "refuse":'),),
        f"{_TESTS}::test_lane_that_waits_for_somebody",
    ),
    Mutant(
        "consumer-ready-without-brokers",
        "Probes take a consumer that reaches no broker for ready.",
        (
            Patch(
                "ringfence_client/web.py",
                "ready = consumer.ready and not self._watch.away",
                "ready = consumer.ready",
            ),
        ),
        "tests/unit/test_consumer_metrics.py::test_broker_away",
    ),
    Mutant(
        "lag-of-waiting-partitions-hidden",
        "A partition that a consumer waits for is in no metric: nobody sees that it stands still.",
        (
            Patch(
                "ringfence_client/metrics.py",
                "(self._consumer.held_partitions.assigned or set()) - held.keys()",
                "set(held) - held.keys()",
            ),
        ),
        "tests/unit/test_consumer_metrics.py::test_metrics",
    ),
    Mutant(
        "lag-of-a-recreated-topic-is-nought",
        "A refused lane whose input was created again shows no lag, and messages wait unseen.",
        (Patch("agents/lags.py", "if done > end and (lane is None", "if done < 0 and (lane is None"),),
        "tests/integration/test_faulty_address.py::test_lag_of_a_topic_that_is_another_one",
    ),
    Mutant(
        "names-are-markup",
        "An ID or a group that looks like markup ends the verb that would show it, or is not seen.",
        (
            Patch(
                "conf/terminal.py",
                "    return found if found.is_terminal else _Plain(markup=False, emoji=False, width=_WIDTH_MAX)\n",
                "    return found if found.is_terminal else _Plain(width=_WIDTH_MAX)\n",
            ),
        ),
        "tests/unit/test_terminal.py::test_names_are_nobodys_commands",
    ),
    Mutant(
        "names-steer-terminals",
        "A handler's error or a producer's key clears the operator's screen, or writes what looks like another row.",
        (
            Patch(
                "conf/terminal.py",
                '        return super().render_str(printable(text, keep="\\n"), **options)\n',
                "        return super().render_str(text, **options)\n",
            ),
        ),
        "tests/unit/test_terminal.py::test_names_are_nobodys_commands",
    ),
    Mutant(
        "names-write-log-lines",
        "Whoever chooses a group's name writes what looks like another line into the log of a consumer.",
        (
            Patch(
                "ringfence_kafka/logs.py",
                'keep="\\n\\t" if of_others else "")',
                'keep="\\n\\t")',
            ),
        ),
        "tests/unit/test_logs.py::test_text_of_others",
    ),
)
