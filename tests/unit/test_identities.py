"""Which topic of a name it is: the question and its answer as the protocol has them, and which brokers are asked."""

import asyncio
import io
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from ringfence_kafka import identities
from ringfence_kafka.compact import Question
from ringfence_kafka.identities import IdentityQuestions, TopicIdentity

ANSWER = {"in": TopicIdentity("A", 2)}


class _Client:
    """Of brokers that answer, or raise what is told."""

    def __init__(self, *nodes: int) -> None:
        self.cluster = SimpleNamespace(brokers=lambda: [SimpleNamespace(nodeId=each) for each in nodes])
        self.refused: dict[int, Exception] = {}
        self.asked: list[int] = []

    async def send(self, node: int, question: Question) -> Any:
        assert (question.API_KEY, question.API_VERSION) == (3, 12)
        self.asked.append(node)
        if node in self.refused:
            raise self.refused[node]
        return ANSWER


def _questions(client: _Client) -> IdentityQuestions:
    admin: Any = SimpleNamespace(_client=client)
    return IdentityQuestions(admin)


def _bytes(*parts: bytes | str) -> bytes:
    return b"".join(bytes.fromhex(each) if isinstance(each, str) else each for each in parts)


def test_the_question() -> None:
    """Written by hand from Kafka's message definitions: names without IDs, nothing is created, no rights are told."""
    question = identities._metadata(["two", "one"])

    expected = _bytes("03", bytes(16), "04", b"one", "00", bytes(16), "04", b"two", "00", "00", "00", "00")
    assert question.encode() == expected


def test_the_answer() -> None:
    """Tagged fields, which brokers may add, are passed over; what one topic is does not depend on another one."""
    fine = _bytes(
        "0000", "03", b"in", "fbff00000000000000000000000000ff", "00", "03",
        "0000 00000000 00000001 00000005", "03 00000001 00000002", "02 00000001", "02 00000002", "00",
        "0005 00000001 ffffffff ffffffff", "01", "01", "01", "01 07 02 aabb",
        "80000000", "01 08 01 ff",
    )  # fmt: skip
    unknown = _bytes("0003", "05", b"gone", bytes(16), "00", "01", "80000000", "00")
    hidden = _bytes("001d", "07", b"hidden", bytes(16), "00", "01", "80000000", "00")
    odd = _bytes("0011", "02", b"?", bytes(16), "00", "01", "80000000", "00")
    data = _bytes(
        "00", "00000000",
        "03", "00000001", "0a", b"127.0.0.1", "00002384", "00", "00", "00000002", "02", b"h", "00002384", "02", b"r", "00",
        "02", b"c", "00000001", "05", fine, unknown, hidden, odd, "00",
    )  # fmt: skip
    question = identities._metadata([])
    buffer = io.BytesIO(struct.pack(">i", 3) + data)
    assert question.parse_response_header(buffer).correlation_id == 3

    answers: Any = question.RESPONSE_TYPE.decode(buffer)

    assert list(answers) == ["in", "gone", "hidden", "?"]
    assert answers["in"] == TopicIdentity("+/8AAAAAAAAAAAAAAAAA/w", 2)
    assert isinstance(answers["gone"], UnknownTopicOrPartitionError)
    assert isinstance(answers["hidden"], TopicAuthorizationFailedError)
    assert isinstance(answers["?"], KafkaConnectionError)


def test_who_is_asked() -> None:
    """Whoever answered last first; where it is away, another one, and each of them once."""
    client = _Client(1, 2, 3)
    questions = _questions(client)

    async def ask() -> list[int]:
        client.asked = []
        assert await questions.ask(["in"]) == ANSWER
        return client.asked

    (first,) = asyncio.run(ask())
    assert [asyncio.run(ask()) for _ in range(20)] == [[first]] * 20
    client.refused[first] = NodeNotReadyError()
    _, second = asyncio.run(ask())
    assert asyncio.run(ask()) == [second]
    client.refused[second] = KafkaConnectionError()
    assert asyncio.run(ask())[0] == second


def _telling(known: dict[int, dict[str, TopicIdentity]], monkeypatch: pytest.MonkeyPatch) -> _Client:
    """Brokers of which each knows some topics."""
    client = _Client(*known)
    answer = client.send

    async def send(node: int, question: Question) -> Any:
        await answer(node, question)
        return {
            topic: known[node].get(topic) or UnknownTopicOrPartitionError(topic)
            for topic in wanted[question.encode()]
        }

    wanted = {
        identities._metadata(topics).encode(): topics for topics in (["in"], ["out"], ["gone"], ["in", "out"])
    }
    monkeypatch.setattr(client, "send", send)
    return client


def test_a_topic_that_was_just_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker hears of it before another one; what the first knows is not asked for again, and who knows more is asked first from then on."""
    one, two = TopicIdentity("A", 1), TopicIdentity("B", 2)
    client = _telling({1: {"in": one}, 2: {"in": one}, 3: {"in": one, "out": two}}, monkeypatch)
    for away in (None, 2):
        client.asked = []
        client.refused = {} if away is None else {away: KafkaConnectionError()}
        questions = _questions(client)
        questions._answered = 1

        assert asyncio.run(questions.ask(["in", "out"])) == {"in": one, "out": two}

        assert client.asked in ([1, 2, 3], [1, 3])
        assert questions._answered == 3


def test_a_topic_that_no_broker_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is asked once; one that is silent does not keep the answer back."""
    client = _telling({1: {}, 2: {}, 3: {}}, monkeypatch)
    questions = _questions(client)

    found = asyncio.run(questions.ask(["gone"]))

    assert isinstance(found["gone"], UnknownTopicOrPartitionError)
    assert sorted(client.asked) == [1, 2, 3]

    answer = client.send

    async def send(node: int, question: Question) -> Any:
        if node != 1:
            await asyncio.Event().wait()
        return await answer(node, question)

    monkeypatch.setattr(client, "send", send)
    monkeypatch.setattr(identities, "ELSEWHERE_S", 0.05)
    questions._answered = 1
    found = asyncio.run(questions.ask(["gone"]))

    assert isinstance(found["gone"], UnknownTopicOrPartitionError)


def test_one_that_is_silent() -> None:
    """Is asked last from then on: each time costs as long as a request may take."""
    client = _Client(1, 2, 3)
    client.refused = {1: RequestTimedOutError()}
    questions = _questions(client)
    questions._answered = 1
    with pytest.raises(KafkaConnectionError):
        asyncio.run(questions.ask(["in"]))
    client.asked = []

    for _ in range(20):
        questions._answered = None
        assert asyncio.run(questions.ask(["in"])) == ANSWER

    assert len(client.asked) == 20
    assert 1 not in client.asked


@pytest.mark.parametrize(
    ("error", "asked"), [(NodeNotReadyError(), 3), (KafkaConnectionError(), 3), (RequestTimedOutError(), 1)]
)
def test_nobody_answers(error: Exception, asked: int) -> None:
    """Each is asked once; one that is silent has had all the time that there is, and is not asked first again."""
    client = _Client(1, 2, 3)
    client.refused = dict.fromkeys((1, 2, 3), error)
    questions = _questions(client)

    with pytest.raises(KafkaConnectionError, match=f"which topics these are: .*{type(error).__name__}"):
        asyncio.run(questions.ask(["in"]))

    assert len(client.asked) == len(set(client.asked)) == asked
    assert questions._answered is None


def test_no_broker_is_known() -> None:
    """That is an answer too."""
    with pytest.raises(KafkaConnectionError, match="no broker is known"):
        asyncio.run(_questions(_Client()).ask(["in"]))
