"""Reasons for which a lane must reopen, or must not run."""

from collections.abc import Mapping
from typing import Final

QUESTION_LIMIT_S: Final = 15.0
"""Limit of one query to the cluster, in seconds."""


class LaneRefusedError(Exception):
    """The lane must not run; the message says what to do."""


class TopicMissingError(Exception):
    """A topic that the lane needs does not exist, or was deleted. It may be created again."""


class TopicChangedError(Exception):
    """The ``max.message.bytes`` of a topic changed since the opening: the lane must reopen to apply it."""


class PartitionsChangedError(Exception):
    """The lane owns other partitions than at the opening: it must reopen to read them."""


class ChangelogRecreatedError(Exception):
    """The changelog was deleted and created again since the opening: the lane must reopen to write its IDs into the new one."""


class LimitsAgreedError(Exception):
    """All live workers state the same new limits: the lane must reopen to apply them."""


def require_sizes(known: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Raise TopicChangedError if the ``max.message.bytes`` of a topic changed since the opening. Missing topics are skipped."""
    changed = [
        f"{name} takes {now[name]} bytes" for name in known if now.get(name, known[name]) != known[name]
    ]
    if changed:
        raise TopicChangedError(f"max.message.bytes has changed: {', '.join(changed)} now")
