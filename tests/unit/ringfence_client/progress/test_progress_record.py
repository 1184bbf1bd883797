import base64
import json
from typing import Any

import pytest

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress, ProgressFormatError


def _document(**changed: Any) -> bytes:
    """Return a good record, with something changed; ``...`` = left out."""
    progress = Progress(
        5, finished=[(7, 9)], attempts={6: 2}, reserved=20, holder="me", web="http://here", state="held"
    )
    document = json.loads(progress_record.encode(progress))
    document.update(changed)
    return json.dumps({key: value for key, value in document.items() if value is not ...}).encode()


def test_round_trip() -> None:
    progress = Progress(
        5, finished=[(7, 9), (12, 13)], attempts={6: 2, 11: 1}, reserved=20_000, holder="me", web="http://here:1", purged={b"\xff": (6, 9)}, state="draining", token=7,
        delivered=13, running=2, beat=99, topic_id="A", states="B",
    )  # fmt: skip

    assert progress_record.decode(progress_record.encode(progress)) == progress
    assert progress_record.decode(progress_record.encode(Progress(0))) == Progress(0, finished=[])


def test_key() -> None:
    """A key names consumer group, topic and partition, whatever letters are in them."""
    for parts in (("group", "orders.accepted", 3), ('with "quotes", and ü', "t", 0)):
        assert progress_record.decode_key(progress_record.encode_key(*parts)) == parts

    assert progress_record.encode_key("g", "t", 1) == b'["g","t",1]'


@pytest.mark.parametrize("key", [b"", b'["g","t"]', b'["g","t","one"]', b"7", b"\xff", b'{"a":1}'])
def test_no_key(key: bytes) -> None:
    with pytest.raises(ProgressFormatError, match="is no key of a progress record") as raised:
        progress_record.decode_key(key)

    assert repr(key) in str(raised.value)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"{}",
        _document(next=...),
        _document(next=float("inf")),
        _document(finished="%%%"),
        _document(finished=7),
        _document(finished=base64.b64encode(b"\x01\x80").decode()),
        _document(attempts={"one": 1}),
        _document(state="taken"),
        _document(token={}),
        _document(purged={"no hex": 1}),
        _document(purged={"61": 7}),
    ],
)
def test_damaged(value: bytes) -> None:
    """A damaged record is refused with its own text; nothing is guessed."""
    with pytest.raises(ProgressFormatError, match="cannot be read") as raised:
        progress_record.decode(value)

    assert repr(value[:200]) in str(raised.value)


@pytest.mark.parametrize("found", [1, 4, "1", None])
def test_another_format(found: Any) -> None:
    """A record of another format names that format and the remedy, even if the rest cannot be read."""
    value = json.dumps({"format": found, "whatever": []}).encode()

    said = f"has format {found}, this version reads 2 and 3: run the version"
    with pytest.raises(ProgressFormatError, match=said):
        progress_record.decode(value)
