"""Why a lane opens again, or must not run."""

from collections.abc import Mapping
from typing import Final

QUESTION_LIMIT_S: Final = 15.0
"""For one question to the cluster."""


class LaneRefusedError(Exception):
    """The lane must not run; the text names the way out."""


class TopicMissingError(Exception):
    """A topic that the lane needs does not exist (any more); it may come back."""


class TopicChangedError(Exception):
    """A topic takes larger or smaller records than at the opening: the lane must reopen to apply it."""


class PartitionsChangedError(Exception):
    """The lane owns other partitions than at the opening: it must reopen to read them."""


class ChangelogRecreatedError(Exception):
    """The changelog is another topic than at the opening: the lane must reopen to write its IDs into it."""


class LimitsAgreedError(Exception):
    """All live workers state the same new limits: the lane must reopen to apply them."""


def require_sizes(known: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Compare the ``max.message.bytes`` of topics with those of the opening; a topic that is missing now is not compared.

    Raises:
        TopicChangedError: one has changed.
    """
    changed = [
        f"{name} takes {now[name]} bytes" for name in known if now.get(name, known[name]) != known[name]
    ]
    if changed:
        raise TopicChangedError(f"max.message.bytes has changed: {', '.join(changed)} now")
