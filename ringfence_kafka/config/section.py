"""What every table of the configuration has in common, and names that several of them take."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints

TopicName = Annotated[
    str, StringConstraints(pattern=r"^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$", max_length=200)
]
"""Kafka's legal characters; ``.`` and ``..`` are no topics."""


class Section(BaseModel):
    """Strict and closed: a string is no number, and a key that nobody reads is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
