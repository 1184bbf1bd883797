"""Envelopes as their producers write them, and whatever else may stand in a value."""

import json
from typing import Any

import pytest

from agents.decision.envelope import PARTS_MAX, MalformedEnvelopeError, decode

FORM = b"json/1"


def parts(*those: Any) -> bytes:
    return json.dumps({"parts": those}).encode()


def test_most() -> None:
    assert len(decode(FORM, parts(*[{}] * PARTS_MAX))) == PARTS_MAX
    with pytest.raises(MalformedEnvelopeError, match="10,001 of them: at most 10,000"):
        decode(FORM, parts(*[{}] * (PARTS_MAX + 1)))


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "no value"),
        (b"", "not JSON"),
        (b"\xff", r"not UTF-8 \(byte 0\)"),
        ('{"parts": [{}]}'.encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf" + parts({}), "not JSON"),
        (parts({}) + b"x", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"parts": [' + b"1" * 10_000 + b"]}", "part 1/1: it is not a JSON object"),
        (b'{"parts": [NaN]}', "NaN is not JSON"),
        (b'{"parts": [{}], "parts": [{}]}', "the name 'parts' occurs twice"),
        (b'{"parts": [{}, {"key": "a", "key": "b"}]}', "part 2/2: the name 'key' occurs twice"),
        (b"[]", "not a JSON object"),
        (b"{}", "not a JSON object with"),
        (b'{"parts": [{}], "part": 1}', "unknown name 'part' beside"),
        (b'{"parts": {}}', "is not a list"),
        (b'{"parts": []}', "is empty"),
        (parts({}, []), "part 2/2: it is not a JSON object"),
        (parts({"id": "7"}), "part 1/1: unknown name 'id': known are address, headers, key"),
        (parts({"address": ""}), 'part 1/1: "address"'),
        (parts({"key": 7}), '"key" is not a string'),
        (parts({"value": {"amount": 10}}), '"value" is not a string'),
        (parts({"value": "a", "value_base64": "YQ=="}), 'both "value" and "value_base64"'),
        (parts({"value_base64": "YQ"}), '"value_base64" is not base64'),
        (parts({"value_base64": "YWJj="}), '"value_base64" is not base64: with its padding it has 5'),
        (parts({"value_base64": "Y Q=="}), '"value_base64" is not base64'),
        (parts({"value_base64": "\u00fc"}), '"value_base64" is not base64'),
        (parts({"value_base64": 7}), '"value_base64" is not a string'),
        (parts({"key": "\ud800"}), '"key" holds half of a surrogate pair'),
        (parts({"headers": {}}), '"headers" is not a list'),
        (parts({"headers": [7]}), "a header is not a JSON object"),
        (parts({"headers": [{"value": "1"}]}), 'a header has no "name"'),
        (parts({"headers": [{"name": "a", "key": "b"}]}), "unknown name 'key' in a header"),
        (parts({}, {"headers": [{"name": "_RF_SOURCE", "value": "x"}]}), "part 2/2: the header '_RF_SOURCE' begins with _RF_"),
    ],
    ids=str,
)  # fmt: skip
def test_malformed(value: bytes | None, complaint: str) -> None:
    """Each problem of a malformed envelope is named so that a person finds it."""
    with pytest.raises(MalformedEnvelopeError, match=complaint):
        decode(FORM, value)


@pytest.mark.parametrize("form", [b"", b"json/2", b"avro", b"\xff" * 100])
def test_other_forms(form: bytes) -> None:
    """An envelope of another form is refused, whether a later version or nobody wrote it."""
    with pytest.raises(MalformedEnvelopeError, match=r"_RF_TX is .*: this version reads json/1") as raised:
        decode(form, parts({}))

    assert len(str(raised.value)) < 200
