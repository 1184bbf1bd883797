"""Which topic of a name it is: the question and its answer as the protocol has them, and which brokers are asked."""

import asyncio
import io
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from ringfence_kafka.admin import topic_ids
from ringfence_kafka.admin.topic_ids import IdentityQuestions, TopicIdentity


def _bytes(*parts: bytes | str) -> bytes:
    return b"".join(bytes.fromhex(part) if isinstance(part, str) else part for part in parts)


def test_the_question() -> None:
    """The request follows Kafka's message definitions: names without IDs, no topic creation, no permissions."""
    question = topic_ids._metadata(["two", "one"])

    expected = _bytes("03", bytes(16), "04", b"one", "00", bytes(16), "04", b"two", "00", "00", "00", "00")
    assert (question.API_KEY, question.API_VERSION) == (3, 12)
    assert question.encode() == expected


def test_the_answer() -> None:
    """Tagged fields, which brokers may add, are passed over; what one topic is does not depend on another one."""
    fine = _bytes(
        "0000", "03", b"in", "fbff00000000000000000000000000ff", "00", "03",
        "0000 00000000 00000001 00000005", "03 00000001 00000002", "02 00000001", "02 00000002", "00",
        "0005 00000001 ffffffff ffffffff", "01", "01", "01", "01 07 02 aabb",
        "80000000", "01 08 01 ff",
    )  # fmt: skip
    others = ("0003 05", b"gone"), ("001d 07", b"hidden"), ("0011 02", b"?")
    unknown, hidden, odd = (_bytes(*other, bytes(16), "00", "01", "80000000", "00") for other in others)
    data = _bytes(
        "00", "00000000",
        "03", "00000001", "0a", b"127.0.0.1", "00002384", "00", "00", "00000002", "02", b"h", "00002384", "02", b"r", "00",
        "02", b"c", "00000001", "05", fine, unknown, hidden, odd, "00",
    )  # fmt: skip
    question = topic_ids._metadata([])
    buffer = io.BytesIO(struct.pack(">i", 3) + data)
    assert question.parse_response_header(buffer).correlation_id == 3

    answers: Any = question.RESPONSE_TYPE.decode(buffer)

    assert list(answers) == ["in", "gone", "hidden", "?"]
    assert answers["in"] == TopicIdentity("+/8AAAAAAAAAAAAAAAAA/w", 2)
    assert [type(answers[name]) for name in ("gone", "hidden", "?")] == [
        UnknownTopicOrPartitionError, TopicAuthorizationFailedError, KafkaConnectionError,
    ]  # fmt: skip


class _Brokers:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, *known: dict[str, str]) -> None:
        """``known``: the topics of brokers 1, 2 and so on. The first one is believed."""
        self.known = dict(enumerate(known, 1))
        self.away: set[int] = set()
        self.silent: set[int] = set()
        self.asked: list[tuple[int, list[str]]] = []
        self.cluster = SimpleNamespace(
            brokers=lambda: [SimpleNamespace(nodeId=number) for number in self.known]
        )
        monkeypatch.setattr(topic_ids, "_metadata", list)
        monkeypatch.setattr(topic_ids, "ANSWER_S", 0.05)
        monkeypatch.setattr(topic_ids, "ELSEWHERE_S", 0.05)
        admin: Any = SimpleNamespace(_client=self)
        self.questions = IdentityQuestions(admin)
        self.questions._believed = 1

    async def send(self, node: int, topics: list[str]) -> Any:
        self.asked.append((node, topics))
        if node in self.silent:
            await asyncio.Event().wait()
        if node in self.away:
            raise KafkaConnectionError(node)
        has = self.known[node]
        return {
            topic: TopicIdentity(has[topic], 1) if topic in has else UnknownTopicOrPartitionError(topic)
            for topic in topics
        }

    def ask(self, *topics: str) -> list[str]:
        """Return the IDs, or the names of errors."""
        self.asked = []
        found = asyncio.run(self.questions.identify(topics))
        return [
            item.topic_id if isinstance(item, TopicIdentity) else type(item).__name__
            for item in (found[topic] for topic in topics)
        ]


GONE = "UnknownTopicOrPartitionError"
UNSURE = "KafkaConnectionError"


@pytest.mark.parametrize("away", [set(), {2}], ids=["all there", "one away"])
def test_a_topic_that_was_just_made(away: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that only one broker knows yet is found, and that broker is believed from then on."""
    brokers = _Brokers(monkeypatch, {"in": "A"}, {"in": "A"}, {"in": "A", "out": "B"})
    brokers.away = away

    assert brokers.ask("in", "out") == ["A", "B"]

    first, *others = brokers.asked
    assert first == (1, ["in", "out"])
    assert sorted(others) == [(2, ["out"]), (3, ["out"])]
    assert (brokers.ask("in", "out"), brokers.asked) == (["A", "B"], [(3, ["in", "out"])])


def test_a_topic_that_no_broker_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that no broker knows does not exist; a silent broker does not delay that answer."""
    brokers = _Brokers(monkeypatch, {}, {}, {})
    brokers.questions._believed = None

    assert brokers.ask("gone") == [GONE]
    assert sorted(node for node, _ in brokers.asked) == [1, 2, 3]
    brokers.silent = {2, 3}
    brokers.questions._believed = 1
    assert brokers.ask("gone") == [GONE]


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each broker is asked once if none answers, and none is believed afterwards."""
    brokers = _Brokers(monkeypatch, {}, {}, {})
    brokers.away = {1, 2, 3}
    brokers.questions._believed = 2

    with pytest.raises(
        KafkaConnectionError, match=r"no broker reports the topic IDs: .*KafkaConnectionError"
    ):
        brokers.ask("in")

    assert brokers.asked[0][0] == 2
    assert sorted(node for node, _ in brokers.asked) == [1, 2, 3]
    assert brokers.questions._believed is None
    with pytest.raises(KafkaConnectionError, match="no broker is known"):
        _Brokers(monkeypatch).ask("in")


@pytest.mark.parametrize("late", [{"in": "A"}, {}], ids=["the topic before it", "none"])
def test_one_that_is_late(late: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that lags behind does not revoke an answer while the believed one is away, until it has caught up."""
    brokers = _Brokers(monkeypatch, {"in": "B"}, late, {"in": "B"})
    assert brokers.ask("in") == ["B"]

    brokers.away = {1}
    told = [brokers.ask("in") for _ in range(20)]

    assert set(map(tuple, told)) <= {(UNSURE,), ("B",)}
    assert told[1:] == [["B"]] * 19
    brokers.away = {1, 3}
    brokers.known[2] = {"in": "B"}
    assert brokers.ask("in") == ["B"]


def test_made_anew_while_one_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other brokers are believed once they agree, even a single one, if the topic was created again while one is away."""
    for others, found in (("B", "B"), ("BB", "B"), ("BC", UNSURE)):
        brokers = _Brokers(monkeypatch, {"in": "A"}, *({"in": other} for other in others))
        assert brokers.ask("in") == ["A"]
        brokers.away = {1}

        assert [brokers.ask("in") for _ in range(5)] == [[found]] * 5


def test_one_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent broker is soon replaced by another one, and is asked last until it answers again."""
    brokers = _Brokers(monkeypatch, {"in": "A"}, {"in": "A"}, {"in": "A"})
    brokers.silent = {1}
    assert brokers.ask("in") == ["A"]
    assert brokers.asked[0][0] == 1

    for _ in range(20):
        brokers.questions._believed = None
        assert brokers.ask("in") == ["A"]
        assert 1 not in [node for node, _ in brokers.asked]
    brokers.silent, brokers.away = set(), {2, 3}
    assert brokers.ask("in") == ["A"]
    assert brokers.questions._silent == set()
