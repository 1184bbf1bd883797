"""Status findings for a cause that many lanes share: one problem, taken from fields of the workers' reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.lane.state_folder import IDS_IN_MEMORY_MAX, StateFolder
from app.commands.status import lanes, page
from app.commands.status import status as verb
from app.commands.status.findings import findings
from app.commands.status.model import Worker
from ringfence_kafka.groups.members import Member
from tables.rocksdb.errors import StateFolderError
from tests.support.statuses import BRIDGE, STATUS, WORKER, only, printed, with_lanes, with_share

MEMBER = Member("w1", "10.0.0.1", "http://w1:6066", frozenset())


def _worker(**told: Any) -> Worker:
    """As its health describes it."""
    return lanes._worker(MEMBER, 2, {"ready": True, **told}, None)


NO_SPACE = "No space left on device"


async def _no_others() -> bool:
    return False


async def test_one_disk_is_one_problem() -> None:
    """A full disk under three lanes is one problem that names them, whatever files are refused, and in an earlier version."""
    assert lanes._folder_fault({"reason": "StateFolderError: /data/w1/orders-0 cannot be written"})
    assert not lanes._folder_fault({"reason": "TimeoutError"})
    folder = StateFolder(_no_others, lambda _: None, lambda: IDS_IN_MEMORY_MAX, lambda: 0.0)
    reasons = {}
    for number in range(3):
        path, name = Path(f"/data/w1/orders-{number}"), f"orders-{number}"
        error = StateFolderError(path, f"IO error: {NO_SPACE}: {path}/00000{number}.log", "make room")
        assert not await folder.failed(name, 1, error)
        reasons[name] = {"state": "retrying", "reason": str(error), "folder_fault": True}
    status = with_lanes(state="retrying", lag=2, folder_fault=True, reason="StateFolderError: no space")
    status = replace(status, workers=[_worker(state_folder=folder.fault, lanes=reasons)])
    found = only(status)

    assert (found.where, found.stands, found.do) == ("worker w1", True, "look at the disk of 10.0.0.1")
    assert found.what.startswith(
        f"lanes orders-0, orders-1, orders-2: 3 folders in /data/w1 cannot be written: IO error: {NO_SPACE}"
    )
    assert "lanes wait" in found.what
    assert found.what.endswith("; up to 4 messages wait")
    assert printed(status, 2_000).count("ACT") == 1
    assert page.render(status, [found], "w1", {}).count(NO_SPACE) == 1


async def test_two_causes_are_named() -> None:
    """A full disk and a missing permission are two problems with their lanes; when one has passed, only the other is named."""
    folder = StateFolder(_no_others, lambda _: None, lambda: 0, lambda: 0.0)
    for number, fault in enumerate([NO_SPACE, "Permission denied", NO_SPACE]):
        path = Path(f"/data/w1/orders-{number}")
        await folder.failed(f"orders-{number}", 1, StateFolderError(path, fault, "help"))

    assert folder.fault.startswith(
        f"lanes orders-0, orders-2: 2 folders in /data/w1 cannot be written: {NO_SPACE}: help; "
        "lane orders-1: /data/w1/orders-1 cannot be written: Permission denied: help ("
    )
    for lane in ("orders-0", "orders-2"):
        folder.on_disk(lane)
    assert NO_SPACE not in folder.fault
    folder.on_disk("orders-1")
    assert folder.fault == ""


def test_a_long_text_is_shortened() -> None:
    """A long text is shown by its beginning, its end and the place of the rest. Programs get all of it."""
    text = f"ValueError: {'x' * 2_000}"
    status = with_lanes(state="retrying", reason=text, lag=3)
    found = findings(status)
    begins, ends = f"tries again and again: ValueError: {'x' * 400}", "x; up to 6 messages wait"
    for shown, whole in (
        (printed(status, 2_000).replace("\n", ""), "--json has all"),
        (page.render(status, found, "w1", {}), "/status has all"),
    ):
        assert begins in shown
        assert ends in shown
        assert "x" * 500 not in shown
        assert f"more characters: {whole}" in shown
    assert text in verb.as_document(status, found)["findings"][0]["what"]
    own = {"orders-0": {"state": "retrying", "reason": text}}
    assert "x" * 500 not in page.render(None, [], "w1", own, "brokers are away")


def test_a_quota_is_a_note() -> None:
    """A quota that delays two workers and a consumer is a note for each group, with the quotas."""
    workers = [replace(_worker(throttled={"Fetch": 1.5, "Produce": 2}), name=name) for name in ("w1", "w2")]
    group = replace(STATUS.consumers[0], throttled=lanes.throttled([{"throttled": {"Fetch": 2.5}}, {}] * 2))
    status = replace(STATUS, workers=workers, consumers=[group])
    of_workers, of_consumers = findings(status)

    assert (of_workers.where, of_consumers.where) == ("workers w1, w2", "billing at orders")
    assert not of_workers.stands
    assert of_workers.what.startswith("brokers delay Fetch and Produce requests: a quota")
    assert "raise consumer_byte_rate or producer_byte_rate of" in of_workers.do
    assert "raise consumer_byte_rate of" in of_consumers.do
    document = verb.as_document(status, [])
    assert document["workers"][0]["throttled"] == {"Fetch": 1.5, "Produce": 2}
    assert document["consumers"][0]["throttled"] == {"Fetch": 5.0}


[ADDRESS] = with_lanes(state="retrying", reason="brokers are away", lag=1).addresses
OTHER = replace(ADDRESS, address="bills", topic="bills", lanes=[replace(ADDRESS.lanes[0], lane="bills-0")])
[GROUP] = with_share(lag=5, state="none", holder=None, head_age_seconds=61.0).consumers
SHARES = [replace(GROUP.partitions[0], partition=index) for index in range(6)]


def test_one_cause() -> None:
    """One cause for several is one finding, and of many only some are named."""
    for status, where, what in (
        (replace(STATUS, addresses=[ADDRESS, OTHER]), "lanes orders-0, orders-1, bills-0",
         "brokers are away; up to 3 messages wait"),
        (replace(STATUS, workers=[replace(WORKER, name=name, broker="away") for name in ("w1", "w2")]),
         "workers w1, w2", "brokers do not answer there, and lanes wait"),
        (replace(STATUS, consumers=[replace(GROUP, partitions=SHARES)]),
         "billing at orders, partitions 0, 1, 2, 3 and 2 more", ""),
        (replace(STATUS, bridges=[replace(BRIDGE, bridge=name, fault="no answer") for name in ("a", "b")]),
         "bridges a, b", "no answer"),
    ):  # fmt: skip
        found = only(status)

        assert found.where == where
        assert found.what.endswith(what)


def test_lanes_in_memory() -> None:
    """A lane in memory is a note. Beside a lane without room there it is a problem that somebody has to act on.

    The worker has a field for it. Its text decides nothing, and a worker without the field has none in memory.
    """
    for names, waits, stands in (
        ([], False, True),
        (["orders-0"], True, True),
        (["orders-0", "orders-1"], False, False),
    ):
        told = {"lanes_in_memory": names} if names else {}
        worker = _worker(state_folder="no space (lanes keep their state in memory)", **told)
        [address] = STATUS.addresses
        lane = replace(address.lanes[1], state="retrying", folder_fault=True) if waits else address.lanes[1]
        address = replace(address, lanes=[address.lanes[0], lane])
        status = replace(STATUS, workers=[worker], addresses=[address])
        found = only(status)

        assert found.stands is stands
        assert ("; lane orders-0 in memory" in found.what) is waits
        assert verb.as_document(status, [found])["workers"][0]["lanes_in_memory"] == names
