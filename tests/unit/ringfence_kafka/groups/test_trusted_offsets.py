from unittest.mock import AsyncMock

import pytest
from aiokafka.errors import GroupLoadInProgressError

from ringfence_client.consumer.assignor import KeepingAssignor, is_ours
from ringfence_client.consumer.foreign_members import log
from ringfence_kafka.admin.group_watch import GroupWatch
from ringfence_kafka.groups.committed_offsets import Committed
from ringfence_kafka.groups.foreign_members import CONSUMER, ForeignMember
from ringfence_kafka.groups.trusted_offsets import distrust, own_commit

BY_TOOL = Committed(40, "")
BY_CONSUMER = Committed(40, "", 3)
INTRUDER = ForeignMember("intruder", "10.0.0.9", CONSUMER)


@pytest.mark.parametrize(
    ("committed", "known", "at_joining", "followed"),
    [
        (None, 10, None, True),
        (Committed(10, ""), 10, None, True),
        (BY_TOOL, 10, BY_TOOL, True),  # set while the group was empty
        (BY_TOOL, 10, Committed(10, ""), False),  # set while we were in it
        (BY_TOOL, None, None, False),
        (BY_CONSUMER, 10, BY_CONSUMER, False),
        (BY_CONSUMER, None, BY_CONSUMER, True),  # the group was another program's before it was ours
    ],
)
def test_an_operator_is_followed_and_a_consumer_is_not(
    committed: Committed | None, known: int | None, at_joining: Committed | None, *, followed: bool
) -> None:
    """An operator's offset is recognized by its missing leader epoch and by the time of its move."""
    assert (distrust(committed, known, at_joining, ()) == "") is followed


def test_what_else_is_not_followed() -> None:
    """A consumer's offset in a reserved group, nor one beside a foreign member. A tool that changes an empty group does not join it."""
    assert distrust(BY_TOOL, 10, None, (), joined=False) == ""
    assert distrust(BY_CONSUMER, 10, None, (), joined=False)
    assert distrust(BY_CONSUMER, None, BY_CONSUMER, (), reserved=True)
    assert distrust(BY_TOOL, None, BY_TOOL, (), reserved=True) == ""
    assert "intruder on host 10.0.0.9" in distrust(BY_TOOL, 10, BY_TOOL, [INTRUDER])
    assert distrust(Committed(10, ""), 10, None, [INTRUDER]) == ""


def test_own_commits_have_no_epoch() -> None:
    """Ringfence's own commits have no leader epoch, like those of Kafka's tools."""
    assert own_commit(BY_TOOL) == BY_TOOL
    assert own_commit(BY_CONSUMER) is None
    assert own_commit(None) is None


def _group(offset: Committed | None = None, *foreign: ForeignMember) -> AsyncMock:
    group = AsyncMock(group_id="billing")
    group.topics.partition_counts.return_value = {"t": 2}
    group.groups.committed.return_value = offset
    group.groups.foreign_members.return_value = list(foreign)
    return group


def _watch(group: AsyncMock, member_id: list[str]) -> GroupWatch:
    return GroupWatch(group, ["t"], lambda *_: True, log, "they wait", lambda: member_id[0])


async def test_a_new_membership_is_a_new_beginning() -> None:
    """The group may have been empty in between. Many partitions of one membership cause one question."""
    group, member_id = _group(Committed(5, "")), ["one"]
    watch = _watch(group, member_id)
    await watch.refresh()
    group.groups.committed.return_value = BY_TOOL
    group.groups.foreign_members.reset_mock()
    while_a_member = [await watch.distrust("t", 0, BY_TOOL, 5) for _ in range(100)]
    asked_while_a_member = group.groups.foreign_members.await_count
    member_id[0] = "two"

    assert all(while_a_member)
    assert asked_while_a_member <= 1
    assert await watch.distrust("t", 0, BY_TOOL, 5) == ""


async def test_a_group_that_does_not_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The log names a member once, and once when it leaves."""
    group = _group(None, INTRUDER)
    watch = _watch(group, ["one"])
    await watch.refresh()
    group.groups.foreign_members.side_effect = [GroupLoadInProgressError(), []]
    await watch.refresh()
    named = watch.faults
    await watch.refresh()

    member = "client.id intruder on host 10.0.0.9 (consumer protocol)"
    assert named == [f"the group billing has a foreign member, {member}"]
    assert watch.faults == []
    assert [item.levelname for item in caplog.records if "intruder" in item.message] == ["ERROR", "WARNING"]


def test_members_of_ours() -> None:
    """A member without our statement is foreign, even under the name of our assignor. One of ours may state no app.id, like a bridge."""
    for user_data in (b"", b"null", b"[]", b"{}", b"\xff", b'{"u": {}}'):
        assert not is_ours("t", user_data)
    for app_id in (None, "shop"):
        assert is_ours("t", KeepingAssignor("t", dict, app_id).metadata(["t"]).user_data)
