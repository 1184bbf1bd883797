"""Whether groups wait behind dead letters."""

from typing import Self

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from app.commands.repair import dead_letters
from app.commands.repair.dead_letters import DeadLetterTopic
from app.commands.repair.output import Row
from app.commands.repair.records import parse
from ringfence_kafka.config.load import validate
from tests.support.refused import Fetched


async def test_waiting_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader of dead letters need not see the consumer groups.

    Only the waiting state stays unknown, and each refusal is reported once.
    """

    class Holders:
        def __init__(self, *_: object) -> None:
            self.asked: list[str] = []

        async def blocked(self, group: str) -> set[tuple[int, int]]:
            assert group not in self.asked, "a connection that was refused is not asked again"
            if group != "seen":
                self.asked.append(group)
                error = GroupAuthorizationFailedError if group == "hidden" else TopicAuthorizationFailedError
                raise error("orders.accepted")
            return {(0, 7)}

        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

    def letter(number: int, group: str, offset: int) -> Row:
        headers = [("_RF_CONSUMER_GROUP", group), ("__dlq.errors.topic", "orders.accepted"),
                   ("__dlq.errors.partition", "0"), ("__dlq.errors.offset", str(offset))]  # fmt: skip
        encoded = tuple((name, value.encode()) for name, value in headers)
        return Row(parse("orders.dlq", Fetched(encoded, partition=0, offset=number)), b"group", False)

    monkeypatch.setattr(dead_letters, "LeaseHolders", Holders)
    topic = DeadLetterTopic(validate({"addresses": [{"name": "orders"}]}), "orders")
    rows = [letter(0, "seen", 7), letter(1, "hidden", 7), letter(2, "hidden", 9), letter(3, "else", 7)]
    waits = await topic.waiting(rows)
    said = capsys.readouterr().err.splitlines()

    assert [waits[row.refused.place] for row in rows] == [True, None, None, None]
    assert [name.rpartition(": this user")[2] for name in said] == [
        " may not see the consumer group hidden: allow Describe on it",
        " may not see the topic orders.accepted: allow Describe on it",
    ]
