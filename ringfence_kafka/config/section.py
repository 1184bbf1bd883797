"""What every table of the configuration has in common, and names that several of them take."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator

NAME_PATTERN: Final = r"^[a-zA-Z0-9._-]+$"
TOPIC_NAME_PATTERN: Final = r"^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$"
TOPIC_NAME_MAX: Final = 200
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME_PATTERN, max_length=TOPIC_NAME_MAX)]
"""Kafka's legal characters; ``.`` and ``..`` are no topics."""


class Section(BaseModel):
    """Strict and closed: a string is no number, and a key that nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def listed(field: str, *others: str) -> Any:
    """A validator of fields that are tuples here and lists in the file."""
    return field_validator(field, *others, mode="before")(_as_tuple)


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
