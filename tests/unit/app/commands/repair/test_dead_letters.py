import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from app.commands.repair import dead_letters
from app.commands.repair.dead_letters import DeadLetterTopic
from app.commands.repair.output import Row
from app.commands.repair.records import parse
from ringfence_kafka.config.load import validate
from tests.support.cluster_double import ClusterDouble
from tests.support.records.refused import Fetched


class _Holders(ClusterDouble):
    """Holders of consumer groups, of which this user may see one."""

    def __init__(self, *_: object) -> None:
        self.asked: list[str] = []

    async def blocked(self, group: str) -> set[tuple[int, int]]:
        assert group not in self.asked, "a connection that was refused is not asked again"
        if group != "seen":
            self.asked.append(group)
            error = GroupAuthorizationFailedError if group == "hidden" else TopicAuthorizationFailedError
            raise error("orders.accepted")
        return {(0, 7)}


def _letter(number: int, group: str) -> Row:
    headers = (("_RF_CONSUMER_GROUP", group.encode()), ("__dlq.errors.topic", b"orders.accepted"),
               ("__dlq.errors.partition", b"0"), ("__dlq.errors.offset", b"7"))  # fmt: skip
    return Row(parse("orders.dlq", Fetched(headers, partition=0, offset=number)), b"group", False)


async def test_waiting_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of dead letters need not see the consumer groups."""
    monkeypatch.setattr(dead_letters, "LeaseHolders", _Holders)
    topic = DeadLetterTopic(validate({"addresses": [{"name": "orders"}]}), "orders")
    rows = [_letter(number, group) for number, group in enumerate(("seen", "hidden", "hidden", "else"))]
    waits = await topic.waiting(rows)
    said = capsys.readouterr().err.splitlines()

    assert [waits[row.refused.place] for row in rows] == [True, None, None, None]
    assert [name.rpartition(": this user")[2] for name in said] == [
        " may not see the consumer group hidden: allow Describe on it",
        " may not see the topic orders.accepted: allow Describe on it",
    ]
