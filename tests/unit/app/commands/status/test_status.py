"""Why something has stopped: a sentence with the command that helps; what passes by itself does not stand."""

import json
import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from app.commands.consumers.leases import LeaseRow
from app.commands.status import consumers, page
from app.commands.status import status as verb
from app.commands.status.findings import findings
from app.commands.status.lanes import memory
from app.commands.status.model import NOBODY, OPEN, UNKNOWN, FrequentId, Status, Worker
from ringfence_kafka.errors import named
from ringfence_kafka.groups import members
from ringfence_kafka.groups.descriptions import GroupDescription
from ringfence_kafka.page.history import SPANS, Charts
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.producer.transaction_version import TransactionVersionError
from tests.support.statuses import BRIDGE, STATUS, WORKER, only, printed, with_lanes, with_share

HOSTILE = "a b; $(reboot) 'c'"


[ADDRESS] = STATUS.addresses
NO_WORKER = with_lanes(state=NOBODY, worker=None, lag=1_000)
NOBODY_CONSUMES: dict[str, Any] = {"members": [], "state": "EMPTY"}
FAILING: dict[str, Any] = {"lag": 5, "failing_group": "it's", "failing_attempts": 4}
SKIP = "ringfence groups skip orders 'it'\"'\"'s' --consumer-group billing"
RUNS: dict[str, Any] = {"lag": 5, "running": 1, "run_group": "it's"}
RELEASE = "ringfence groups release orders 'it'\"'\"'s' --consumer-group billing"
SILENT: dict[str, Any] = {"lag": 5, "running": 3, "head_age_seconds": 9_000.0}
DEAD: dict[str, Any] = {"lag": 5, "waits": "c2", "holder_is_member": False}
NOT_HELD: dict[str, Any] = {"lag": 5, "state": "none", "holder": None, "reason": "no permission"}
FULL: dict[str, Any] = {"ring_size": 2_000, "seconds_covered": 12.0}
PROMISE: dict[str, Any] = {"id_min_age": 60.0, "holds": False, "coverage_broken": 3, "enough": 9_000}
FREQUENT = FrequentId("-it's", 30, 40, means="A producer loses messages")
OBSERVES: dict[str, Any] = {"accepted": 98, "duplicates": 12, "observed_duplicates": 10}
OBSERVED = with_lanes(observes=True, **OBSERVES)
ENFORCED = with_lanes(**OBSERVES).addresses[0].lanes[1]


def _rebalancing(*workers: Worker) -> Status:
    return replace(NO_WORKER, workers=[*workers], workers_state="PreparingRebalance")


def _bridged(**changes: Any) -> Status:
    return replace(STATUS, bridges=[replace(BRIDGE, **changes)])


@pytest.mark.parametrize(
    ("status", "stands", "what", "fix"),
    [
        (replace(NO_WORKER, workers=[], workers_state="Empty"), True,
         "no worker runs, so nothing is accepted; up to 2,000 messages wait", "ringfence worker"),
        (_rebalancing(WORKER), False, "", ""),
        (_rebalancing(), False, "", ""),
        (with_lanes(state=NOBODY, worker=None, lag=3), True,
         "no worker has it, though workers run; up to 6 messages wait", "look again in 30 seconds"),
        (with_lanes(state="refused", reason="3 partitions"), True, "cannot run it: 3 partitions", "ringfence topics check"),
        (with_lanes(state="retrying", reason="3 partitions"), True, "tries again and again: 3 partitions", "ringfence topics check"),
        (with_lanes(state="opening", head_age_seconds=5.0), False, "about to open it", "ringfence status"),
        (with_lanes(state="opening", head_age_seconds=61.0), True, "about to open it", "ringfence status"),
        (with_lanes(undecided_seconds=61.0), True, "", "find-hanging"),
        (with_lanes(undecided_seconds=61.0), True, "", "stop that producer"),
        (with_lanes(**FULL), False, "", "ringfence audit orders"),
        (with_lanes(promise=PROMISE, **FULL), False, "", "id_cache_size_max = 9000"),
        (with_lanes(promise=PROMISE, **FULL), False, "", "ringfence rings show orders"),
        (with_lanes(forwarding_share=0.5, forwarding_advice="set partitioner"), False,
         "up to 50.0 % of the records of a lane are forwarded to their home", "set partitioner"),
        (with_lanes(frequent_id=FREQUENT), False,
         "75.0 % of the 80 duplicates of the last hour have the ID -it's. A producer loses messages",
         "ringfence rings find orders 'text:-it'\"'\"'s'"),
        (with_lanes(frequent_id=FrequentId("hex:00", 30, 40, ["/shop", "a 7"])), False,
         "have the ID /shop a 7", "ringfence rings find orders /shop 'a 7'"),
        (OBSERVED, False, "it only observes: of 220 messages, 20 duplicates passed that it would have dropped", 'mode = "enforce"'),
        (replace(OBSERVED, addresses=[replace(ADDRESS, lanes=[*OBSERVED.addresses[0].lanes[:1], ENFORCED])]), False,
         "lane orders-1 drops them", ""),
        (replace(STATUS, workers=[replace(WORKER, broker="away")]), True, "brokers do not answer there", "look at the brokers"),
        (with_share(NOBODY_CONSUMES, lag=12, head_age_seconds=7_300.0, state="released"), True,
         "no consumer runs, and up to 12 messages wait, the oldest for 2 hours", "ringfence consumers forget billing"),
        (with_share(NOBODY_CONSUMES, lag=12, head_age_seconds=7_300.0, state="released"), True,
         "no consumer runs", "ringfence consume orders --handler MODULE:FUNCTION --consumer-group billing"),
        (with_share(**FAILING, failing_seconds=3.0), False,
         "group it's waits: its first message has failed for 3.0 s, 4 attempts so far", SKIP),
        (with_share(**FAILING, failing_seconds=61.0), True,
         "group it's waits: its first message has failed for 61 s, 4 attempts so far", SKIP),
        (with_share(lag=5, blocked=3, blocked_group="it's", head_age_seconds=3.0), True,
         "3 groups wait, each behind a message with a dead letter: it's and 2 more", "ringfence dlq drop"),
        (with_share(lag=5, blocked=1, head_age_seconds=3.0), True,
         "1 group waits, its message has a dead letter: a group", "ringfence groups release orders GROUP --consumer-group billing"),
        (with_share(**DEAD, silent_seconds=3.0), False, "c2 waits for the lease of c1, which has left", "--lease-timeout"),
        (with_share(**DEAD, silent_seconds=61.0), True, "c2 waits for the lease of c1, which has left", "--lease-timeout"),
        (with_share(lag=5, waits="c2", state="draining", running=1), False,
         "c2 waits until c1 has finished its running messages: 1 message", "ringfence groups release orders GROUP"),
        (with_share(**NOT_HELD, head_age_seconds=3.0), False, "it is not open yet: no permission", "ringfence consumers show orders"),
        (with_share(**NOT_HELD, head_age_seconds=61.0), True, "it is not open yet: no permission", "ringfence consumers show orders"),
        (with_share(**RUNS, run_seconds=61.0), False, "group it's for 61 s", RELEASE),
        (with_share(**RUNS, run_seconds=301.0), True, "group it's for 5 minutes", RELEASE),
        (with_share(**SILENT, run_seconds=None), False, "", ""),  # they may hang, or work through a backlog
        (with_share({"faults": ["nearly every attempt fails"]}), True,
         "nearly every attempt fails", "ringfence groups show orders --consumer-group billing"),
        (with_share({"left_behind": 2}), True,
         "2 handlers did not end when cancelled; their groups wait for them", ""),
        (_bridged(standing=["partition 0: GAP"]), False, "partition 0: GAP", "ringfence bridge status"),
        (_bridged(standing=["partition 0: NOBODY"], stands=True), True, "partition 0: NOBODY", ""),
        (_bridged(fault="away", stands=True), True, "away", ""),
    ],
)  # fmt: skip
def test_one_finding(status: Status, stands: bool, what: str, fix: str) -> None:
    """A condition that may pass by itself becomes a problem only if it lasts, and each finding has the fix."""
    found = only(status)

    assert found.stands is stands
    assert what in found.what
    assert fix in f"{found.do}\n{found.command}"


def test_no_finding() -> None:
    for status in (
        STATUS,
        with_lanes(undecided_seconds=5.0),
        with_lanes(state=UNKNOWN, lag=4, head_age_seconds=5.0),
        with_lanes(state=UNKNOWN, lag=0, head_age_seconds=None),
        with_lanes(ring_size=2_000, seconds_covered=90.0),
        with_lanes(promise=PROMISE | {"holds": True, "enough": None}, **FULL),
        with_share(**RUNS, run_seconds=59.0),
        with_share(**SILENT, run_seconds=2.0),  # it answers, and works through a backlog
        with_share(**SILENT | {"head_age_seconds": 59.0}, run_seconds=None),
    ):
        assert findings(status) == []


def test_transaction_version_lowered() -> None:
    """A lowered transaction version is one finding for all lanes, with Kafka's own command and the restart."""
    [address] = with_lanes(state="retrying").addresses
    lanes = [replace(lane, reason=named(TransactionVersionError(lane.lane))) for lane in address.lanes]
    found = only(replace(STATUS, addresses=[replace(address, lanes=lanes)]))

    assert (found.stands, found.where) == (True, "lanes orders-0, orders-1")
    assert found.what.startswith(transaction_version.LOWERED)
    assert "restart all brokers" in found.do
    command = "kafka-features.sh --bootstrap-server kafka:9092 upgrade --feature transaction.version=2"
    assert found.command == command


def test_lane_of_a_silent_worker_that_stands() -> None:
    """A silent worker's lane whose messages wait for longer than an opening takes is a problem, and comes before the note."""
    for web, place in (("http://w1:6066", "at http://w1:6066"), (None, "it has no web server")):
        waiting = with_lanes(state=UNKNOWN, lag=4, head_age_seconds=61.0)
        standing, note = findings(replace(waiting, workers=[replace(WORKER, web=web, ready=None)]))

        assert (standing.stands, note.stands) == (True, False)
        assert place in standing.what
        assert standing.what.endswith("; up to 8 messages wait")
        assert "log of w1" in standing.do
        assert web is None or web in note.what
        for text in ("10.0.0.1", "app.session_timeout"):  # it may have been killed a moment ago
            assert text in note.do


def test_lanes_of_a_silent_worker() -> None:
    """Lanes of a silent worker are shown as unknown: without a zero, which would look like a problem, and without red."""
    for states, shown, ill in (
        ([OPEN, UNKNOWN], "≥1/2", False),
        ([NOBODY, UNKNOWN], "?/2", True),
        (["refused", NOBODY], "0/2", True),
    ):
        [address] = STATUS.addresses
        lanes = [replace(lane, state=state) for lane, state in zip(address.lanes, states, strict=True)]
        status = replace(STATUS, addresses=[replace(address, lanes=lanes)])

        assert f" {shown} " in printed(status)
        row = f"<td{' class=&ill&' if ill else ''}>{shown}</td>".replace("&", '"')
        assert row in page.render(status, [], "w1", {})


def test_commands_run_nothing_else() -> None:
    """A shell reads the name of a consumer group as one word of the command, whatever the name is."""
    for status in (
        with_share({"members": [], "consumer_group": HOSTILE}, lag=1),
        with_share({"consumer_group": HOSTILE, "left_behind": 1}),
        with_share({"consumer_group": HOSTILE}, lag=1, failing_group=HOSTILE, failing_seconds=99.0),
        with_share({"consumer_group": HOSTILE}, lag=1, waits="c2", state="draining"),
    ):
        found = only(status)

        assert shlex.split(found.command).count(HOSTILE) == 1 + (found.what.count(HOSTILE) > 0)
        if "consumers forget" in found.do:
            assert HOSTILE in shlex.split(found.do)


def test_somebody_else_answers() -> None:
    """An answer from another consumer at the same address is ignored."""
    row = LeaseRow("billing", "orders", "t", 0, "held", "c1", True, 1, 0.0, 0, 0, 0, 0, None, "w:1")
    for group, faults in (("billing", ["disk full"]), ("audit", [])):
        answer: consumers.Answer = {"consumer_group": group, "faults": ["disk full"]}
        answers = {"w:1": (answer, None)}
        found = consumers._consumers([row], GroupDescription("Stable", frozenset(), {}), answers, {}, [])
        assert found.faults == faults


def test_what_a_terminal_shows() -> None:
    """A command stands on one line, however narrow the terminal, and every part of the status is shown.

    Names and reasons are anybody's words: they are neither markup nor commands of a terminal.
    """
    status = with_share(lag=5, failing_group="g" * 60, failing_attempts=4, failing_seconds=70.0)
    lines = [line.strip() for line in printed(status, 80).splitlines()]
    assert any(line.endswith(f"skip orders {'g' * 60} --consumer-group billing") for line in lines)
    assert lines[0].startswith("1 thing to act on")
    assert {"ADDRESSES", "LANES", "CONSUMERS", "BRIDGES"} <= set(lines)
    assert any("10.0 %" in line for line in lines)

    hostile = "\x1b[2J[/red][bold]"
    [group] = with_share({"faults": [hostile], "consumer_group": hostile}).consumers
    refused = with_lanes(lane=hostile, state="refused", reason=hostile)
    shown = printed(replace(refused, consumers=[group]), 200)
    assert "\x1b" not in shown
    assert shown.count("\\x1b[2J[/red][bold]") > 3


def test_document() -> None:
    """JSON says whether all is ok, why not, and everything that is known. Problems come before notes."""
    status = replace(with_lanes(state="refused", reason="why"), faults=["a note"])
    told = json.loads(json.dumps(verb.as_document(status, findings(status))))

    assert told["ok"] is False
    assert [found["stands"] for found in told["findings"]] == [True, False]
    assert told["findings"][0]["command"] == "ringfence topics check"
    assert told["addresses"][0]["lanes"][1]["reason"] == "why"
    assert verb.as_document(STATUS, [])["ok"] is True


async def test_member() -> None:
    """A worker's metadata is read from the group, and metadata of another client causes no error."""
    metadata = ConsumerProtocolMemberMetadata(0, ["orders"], json.dumps({"url": "http://w1:6066"}).encode())
    assignment = ConsumerProtocolMemberAssignment(0, [("orders", [0, 2])], b"")
    foreign = ConsumerProtocolMemberMetadata(0, ["orders"], b"\x00\xff").encode()
    described = [
        ("member-1", None, "w1", "/10.0.0.1", metadata.encode(), assignment.encode()),
        ("member-2", None, "w2", "/10.0.0.2", foreign, b""),
    ]
    answer = SimpleNamespace(groups=[(0, "orders", "Stable", "consumer", "p", described, 0)])
    admin: Any = SimpleNamespace(
        find_coordinator=AsyncMock(return_value=1), _send_request=AsyncMock(return_value=answer)
    )

    assert (await members.fetch(admin, "orders", str)).members == (
        ("w1", "10.0.0.1", "http://w1:6066", frozenset({("orders", 0), ("orders", 2)})),
        ("w2", "10.0.0.2", "", frozenset()),
    )


def test_memory() -> None:
    """The memory of workers and consumers is shown as used and allowed bytes; a process without a report adds nothing."""
    answers = [{"memory": {"buffered_bytes": 12 * 2**20, "limit_bytes": 128 * 2**20}}, {}]
    told = memory(answers)
    assert told == {"buffered_bytes": 12 * 2**20, "buffer_limit_bytes": 128 * 2**20}
    assert memory([{}]) == {}
    workers = [replace(STATUS.workers[0], **told)]
    groups = [replace(STATUS.consumers[0], **memory(answers[:1] * 2))]
    status = replace(STATUS, workers=workers, consumers=groups)

    assert "12 of 128 MiB" in printed(status)
    assert "24 MiB" in printed(status)
    assert "12 of 128 MiB" in page.render(status, [], "w1", {})
    assert verb.as_document(status, [])["workers"][0]["buffer_limit_bytes"] == 128 * 2**20


def test_charts_of_a_terminal() -> None:
    """With the last hour two tables more are shown, within 80 columns; a group without figures has blanks."""
    hour = [*[None] * 30, *[float(number) for number in range(30)]]
    past = Charts(SPANS["glance"], {("address", "orders"): {"in": hour, "lag": [0.0] * 60}})
    whole = printed(STATUS, 80, past)
    _, shown = whole.split("ADDRESSES, THE LAST HOUR")

    assert "▁▃▄▅▆█" in shown
    assert "▁" * 12 in shown
    assert "CONSUMERS, THE LAST HOUR" in shown
    assert max(map(len, whole.splitlines())) <= 80
