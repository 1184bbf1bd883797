"""Any value is read as an envelope, or refused with one error that gives the reason."""

import base64
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.decision import fast_envelope
from agents.decision.envelope import MalformedEnvelopeError, decode, decode_any
from agents.decision.fast_envelope import Part
from tests.property import examples

FORM = b"json/1"
EXAMPLES = 500

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda name: not name.startswith("_RF_"))
held = st.none() | texts.map(str.encode) | st.binary(max_size=20)
made = st.lists(
    st.builds(
        Part,
        st.none() | texts.filter(bool),
        held,
        held,
        st.lists(st.tuples(names, held), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=5,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["parts", "address", "key", "key_base64", "value", "value_base64", "headers", "name", "other"]
    ), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def spelled(holder: dict[str, Any], name: str, value: bytes | None, as_base64: bool) -> None:
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        as_base64 = True
    if value is not None and as_base64:
        holder[f"{name}_base64"] = base64.b64encode(value).decode()
    elif value is not None:
        holder[name] = text


@given(made, st.booleans(), st.booleans())
@settings(max_examples=examples(EXAMPLES))
def test_round_trip(those: list[Part], as_base64: bool, ascii_only: bool) -> None:
    """An envelope written in the grammar is read with its meaning, in either spelling."""
    written = []
    for item in those:
        part: dict[str, Any] = {} if item.address is None else {"address": item.address}
        spelled(part, "key", item.key, as_base64)
        spelled(part, "value", item.value, as_base64)
        for name, value in item.headers:
            header: dict[str, Any] = {"name": name}
            spelled(header, "value", value, as_base64)
            part.setdefault("headers", []).append(header)
        written.append(part)

    value = json.dumps({"parts": written}, ensure_ascii=ascii_only).encode()
    assert decode(FORM, value) == decode_any(value) == those
    assert both(value) is not None or b"\\\\" in value


def both(value: bytes) -> list[Part] | None:
    """Read a value with both readers, and require that the quick one agrees with the careful one."""
    found = fast_envelope.read_parts(value)
    assert found is None or found == decode_any(value)
    bare = fast_envelope.read_bare(value)
    if bare is not None:
        keys, values, addresses = bare
        assert keys
        assert addresses == [] or set(addresses) != {None}
        assert decode_any(value) == [
            Part(address, key, text, ())
            for address, key, text in zip(addresses or [None] * len(keys), keys, values, strict=True)
        ]
    return found


def judged(value: bytes) -> None:
    """Return an answer or the one error; nothing else is raised."""
    both(value)
    found, reason = [], ""
    try:
        found = decode(FORM, value)
    except MalformedEnvelopeError as error:
        reason = str(error)

    assert bool(found) != bool(reason)
    assert len(reason.encode()) < 500
    assert all(isinstance(part, Part) for part in found)


@given(st.binary(max_size=200))
@settings(max_examples=examples(EXAMPLES))
def test_any_bytes(value: bytes) -> None:
    judged(value)


@given(anything)
@settings(max_examples=examples(EXAMPLES))
def test_any_json(value: Any) -> None:
    judged(json.dumps(value).encode())
    judged(json.dumps({"parts": value}).encode())
    judged(json.dumps({"parts": [value]}).encode())


@given(made, st.data())
@settings(max_examples=examples(EXAMPLES))
def test_damaged_envelope(those: list[Part], data: st.DataObject) -> None:
    """Both readers agree on an envelope in which a byte or a piece is moved, doubled, missing or changed."""
    written = []
    for item in those:
        part: dict[str, Any] = {"address": item.address}
        spelled(part, "key", item.key, as_base64=data.draw(st.booleans()))
        spelled(part, "value", item.value, as_base64=data.draw(st.booleans()))
        written.append(part)
    if data.draw(st.booleans()):
        named = data.draw(st.booleans())
        written = [
            {"key": f"{part.key!r}", "value": f"{part.value!r}"}
            | ({"address": part.address} if named and part.address is not None else {})
            for part in those
        ]
    value = json.dumps({"parts": written}).encode()
    begin, end = sorted(data.draw(st.tuples(st.integers(0, len(value)), st.integers(0, len(value)))))
    pieces = [b"", b'"', b"\\", b'\\"', b"\\ud800", b"\\udc00", b"null", b"\x01", b'"key": "7", ', b",", b" "]
    piece = data.draw(st.sampled_from([value[begin:end] * 2, *pieces]))
    judged(value[:begin] + piece + value[end:])
    judged(value[:begin] + piece + value[begin:])
