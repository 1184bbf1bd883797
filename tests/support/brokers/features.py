"""Features that the cluster under test has agreed on (KIP-584), and tests that need one."""

import io
import socket
import struct
import time
from typing import Any, Final

import pytest

from ringfence_kafka.producer import transaction_v2_requests
from ringfence_kafka.protocol import flexible_requests
from ringfence_kafka.protocol.flexible_requests import Question, Reader

LIMIT_S: Final = 30.0
_UPDATE_FEATURES: Final = 57
_SAFE_DOWNGRADE: Final = 2
NEEDED: Final = {
    "transaction.version": (2, "transactions that add partitions by themselves (KIP-890)"),
    "group.version": (1, "consumer groups of the new protocol (KIP-848)"),
}
"""Level and name of what a test needs, by feature."""


def levels(bootstrap: str) -> dict[str, int]:
    found: transaction_v2_requests.Features = _ask(
        bootstrap, transaction_v2_requests.api_versions("ringfence-tests", "1")
    )
    return found.agreed


def lower(bootstrap: str, feature: str, level: int) -> None:
    """Lower a feature as ``kafka-features.sh downgrade`` does."""
    update = (
        flexible_requests.text(feature)
        + flexible_requests.INT16.pack(level)
        + bytes([_SAFE_DOWNGRADE])
        + flexible_requests.NO_TAGS
    )
    body = (
        flexible_requests.INT32.pack(round(LIMIT_S * 1000))
        + flexible_requests.array([update])
        + b"\0"
        + flexible_requests.NO_TAGS
    )
    code, text = _ask(bootstrap, Question(_UPDATE_FEATURES, 1, body, _read_update))
    assert code == 0, text
    deadline = time.monotonic() + LIMIT_S
    while (found := levels(bootstrap).get(feature, 0)) != level:
        assert time.monotonic() < deadline, f"{feature} stays at {found}"
        time.sleep(0.02)


def _read_update(reader: Reader) -> tuple[int, str]:
    reader.unpack(flexible_requests.INT32)
    (code,) = reader.unpack(flexible_requests.INT16)
    return code, reader.text()


def _ask(bootstrap: str, question: Question) -> Any:
    host, _, port = bootstrap.partition(":")
    request = question.build_request_header(1, "ringfence-tests").encode() + question.encode()
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as answers:
            (size,) = struct.unpack(">i", answers.read(4))
            buffer = io.BytesIO(answers.read(size))
    question.parse_response_header(buffer)
    return question.RESPONSE_TYPE.decode(buffer)


def require(bootstrap: str, feature: str) -> None:
    needed, what = NEEDED[feature]
    level = levels(bootstrap).get(feature, 0)
    if level < needed:
        pytest.skip(f"the cluster has no {what}: its {feature} is {level}, not {needed}")
