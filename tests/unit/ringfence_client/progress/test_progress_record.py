import base64
import json
import random
from typing import Any

import pytest

from ringfence_client.progress import progress_record
from ringfence_client.progress.progress_record import Progress, ProgressFormatError


def _document(**changed: Any) -> bytes:
    """Return a good record, with something changed; ``...`` = left out."""
    document = json.loads(
        progress_record.encode(Progress(5, [(7, 9)], {6: 2}, 20, "me", "http://here", state="held"))
    )
    document.update(changed)
    return json.dumps({key: value for key, value in document.items() if value is not ...}).encode()


def test_round_trip() -> None:
    """A progress record reads back as it was written."""
    progress = Progress(
        5,
        [(7, 9), (12, 13)],
        {6: 2, 11: 1},
        20_000,
        "me",
        "http://here:1",
        purged={b"\xff": (6, 9)},
        state="draining",
        token=7,
        delivered=13,
        running=2,
        beat=99,
        topic_id="A",
    )

    assert progress_record.decode(progress_record.encode(progress)) == progress
    assert progress_record.decode(progress_record.encode(Progress(0))) == Progress(0, [])


@pytest.mark.parametrize("seed", range(20))
def test_round_trip_of_any(seed: int) -> None:
    """Any progress reads back as it was written, and equal progress gives equal bytes."""
    chance = random.Random(seed)
    ends = sorted(chance.sample(range(1, 3_000), 2 * chance.randrange(200)))
    base = chance.choice([0, 2**40])
    runs = [(base + begin, base + end) for begin, end in zip(ends[::2], ends[1::2], strict=True)]
    attempts = {base + chance.randrange(3_000): chance.randrange(9) for _ in range(chance.randrange(50))}
    progress = Progress(
        base,
        runs,
        attempts,
        base + 9_999,
        "name/é",
        "",
        state=chance.choice(["held", "draining", "released"]),
    )

    assert progress_record.decode(progress_record.encode(progress)) == progress
    assert progress_record.encode(
        progress_record.decode(progress_record.encode(progress))
    ) == progress_record.encode(progress)


def test_key() -> None:
    """A key names consumer group, topic and partition, whatever letters are in them."""
    for parts in (("group", "orders.accepted", 3), ('with "quotes", and ü', "t", 0)):
        assert progress_record.decode_key(progress_record.encode_key(*parts)) == parts

    assert progress_record.encode_key("g", "t", 1) == b'["g","t",1]'


@pytest.mark.parametrize(
    "key", [b"", b"group", b'["g","t"]', b'["g","t","one"]', b'["g","t",null]', b"7", b"\xff", b'{"a":1}']
)
def test_no_key(key: bytes) -> None:
    """A malformed key is named in the error."""
    with pytest.raises(ProgressFormatError, match="is no key of a progress record") as raised:
        progress_record.decode_key(key)

    assert repr(key) in str(raised.value)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[]",
        b"7",
        b'"text"',
        b"null",
        b"{}",
        _document(next=...),
        _document(next=None),
        _document(next=-1),
        _document(next=float("inf")),
        _document(finished=...),
        _document(finished="%%%"),
        _document(finished=7),
        _document(finished=""),
        _document(finished=base64.b64encode(b"\x09\x01").decode()),
        _document(finished=base64.b64encode(b"\x01\x80").decode()),
        _document(attempts=[1]),
        _document(attempts={"one": 1}),
        _document(reserved=...),
        _document(holder=...),
        _document(state=...),
        _document(state="taken"),
        _document(token={}),
        _document(beat=...),
        _document(purged={"no hex": 1}),
        _document(purged=[1]),
        _document(purged={"61": 7}),
    ],
)
def test_damaged(value: bytes) -> None:
    """A damaged record is refused with its own text; nothing is guessed."""
    with pytest.raises(ProgressFormatError, match="cannot be read") as raised:
        progress_record.decode(value)

    assert repr(value[:200]) in str(raised.value)


def test_topic_id() -> None:
    """A record names the topic that its offsets are of."""
    progress = Progress(5, holder="me", topic_id="JBSWY3DPEHPK3PXPabcdef")

    assert progress_record.decode(progress_record.encode(progress)).topic_id == progress.topic_id


@pytest.mark.parametrize("found", [0, 1, 4, "1", True, None])
def test_another_format(found: Any) -> None:
    """A record of another format names that format and the remedy, even if the rest cannot be read."""
    value = json.dumps({"format": found, "whatever": []}).encode()

    with pytest.raises(
        ProgressFormatError, match=f"has format {found}, this version reads 2 and 3: run the version"
    ):
        progress_record.decode(value)
