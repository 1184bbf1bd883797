"""What stands beside each committed offset of a bridge. Pure.

Kafka keeps up to 4,096 bytes of text there. An operator's own commit has none, and is a commit all the same.
"""

import json
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

BYTES_MAX: Final = 4_000
ERROR_CHARACTERS_MAX: Final = 600


@dataclass(frozen=True, slots=True)
class Map:
    """The members of a strict connection that this was forwarded by."""

    number: int
    """Grows with each change."""
    members: tuple[str, ...]


NOT_BEGUN: Final = "not begun"
"""These members were agreed upon, and nobody has opened the partition yet."""
AT_REST: Final = "at rest"
"""Who had it has ended in order, and nothing beyond the offset was sent."""


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Of one source partition."""

    topic_id: str = ""
    """Of the source; empty = not known."""
    partitions: int = 0
    """Of the source topic, when the bridge began here."""
    instance: str = ""
    """Who wrote it."""
    web: str = ""
    """Where that one's pages are."""
    forwarded: int = 0
    """Records that the target acknowledged, also what was sent again."""
    retried: int = 0
    """Records that were sent again, or will be, after a failure."""
    filtered: int = 0
    quarantined: int = 0
    gap_records: int = 0
    """Offsets that retention took before they were read."""
    error: str = ""
    """What stands in its way; empty = nothing."""
    since_ms: int = 0
    """When that began."""
    map: Map | None = None
    lost_end: int = 0
    """Everything that was forwarded lies below, and the log ended before: it stands until somebody sets the offset. 0 = it does not."""
    sent: int = 0
    """The target may have got what lies below; 0 = nothing beyond the offset, as far as its bridge knew then."""
    still: str = ""
    """:data:`NOT_BEGUN` or :data:`AT_REST`; empty = it is open, or was when its bridge died: more may have been sent."""
    returned: int = 0
    """Messages that had been at the target, or here: of those that were filtered, or forwarded all the same."""


def encode(note: OffsetMetadata) -> str:
    """As it is committed."""
    text = _dump(replace(note, error=note.error[:ERROR_CHARACTERS_MAX]))
    return text if len(text.encode()) <= BYTES_MAX else _dump(replace(note, error=note.error[:100]))


def _dump(note: OffsetMetadata) -> str:
    given = {key: value for key, value in asdict(note).items() if value}
    return json.dumps({"v": 1, **given}, ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> OffsetMetadata | None:
    """None = it is not ours."""
    try:
        found: dict[str, Any] = json.loads(text)
        if found.pop("v") != 1:
            return None
        shared = found.pop("map", None)
        members = None if shared is None else Map(int(shared["number"]), tuple(map(str, shared["members"])))
        kinds = {name: type(default) for name, default in asdict(OffsetMetadata()).items() if name != "map"}
        return OffsetMetadata(
            **{name: kinds[name](item) for name, item in found.items() if name in kinds}, map=members
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
