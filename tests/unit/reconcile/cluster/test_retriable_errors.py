"""Questions to a cluster whose leaders and coordinators move."""

from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconcile.cluster import retriable_errors


def _admin() -> Mock:
    """Librdkafka's, which counts how often it was asked who leads."""
    return Mock(list_topics=Mock(side_effect=KafkaException(KafkaError(KafkaError._TIMED_OUT))))


def _asked(admin: Mock, answers: list[int], limit_s: float = 60.0) -> str:
    """``answers``: the codes of the errors that come before the answer."""

    def question() -> str:
        if answers:
            raise KafkaException(KafkaError(answers.pop(0)))
        return "found"

    return retriable_errors.asked(admin, question, limit_s)


def test_asked_until_all_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is repeated until it succeeds, each time after the client has looked up the leader again.

    An error that does not pass is reported at once, and one that lasts beyond the limit unchanged.
    """
    monkeypatch.setattr(retriable_errors, "PAUSE_S", 0.0)
    admin = _admin()

    assert _asked(admin, list(retriable_errors.MOVING)) == "found"
    assert admin.list_topics.call_count == len(retriable_errors.MOVING)
    admin = _admin()
    for code in (
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TIMED_OUT,
    ):
        with pytest.raises(KafkaException) as raised:
            _asked(admin, [code])
        assert (raised.value.args[0].code(), admin.list_topics.call_count) == (code, 0)
    with pytest.raises(KafkaException, match="NOT_COORDINATOR"):
        _asked(admin, [KafkaError.NOT_COORDINATOR], limit_s=-1.0)
