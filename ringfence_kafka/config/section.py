"""Base class of all tables of the configuration, and types of names in several tables."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, StringConstraints, field_validator

from ringfence_kafka.errors import ConfigurationError

NAME_PATTERN: Final = r"^[a-zA-Z0-9._-]+$"
TOPIC_NAME_PATTERN: Final = r"^[a-zA-Z0-9._-]*[a-zA-Z0-9_-][a-zA-Z0-9._-]*$"
INSTANCE_PATTERN: Final = f"^$|{TOPIC_NAME_PATTERN}"
MEMBER_PATTERN: Final = r"^[a-zA-Z0-9_-]+$"
HOST_PATTERN: Final = r"^[a-zA-Z0-9._-]*$"
TOPIC_NAME_MAX: Final = 200
TopicName = Annotated[str, StringConstraints(pattern=TOPIC_NAME_PATTERN, max_length=TOPIC_NAME_MAX)]
"""Kafka's legal characters; Kafka does not allow topics named ``.`` or ``..``."""
GROUP_BYTES_MAX: Final = 1_000
"""Maximum length of a consumer group's name, in bytes. Kafka's limit is about 32,000, and Ringfence derives longer names from this one."""


class Section(BaseModel):
    """Strict and closed: a string does not pass as a number, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Take lists of the file for fields that are tuples here."""
        return tuple(value) if isinstance(value, list) else value


def unit(name: str) -> dict[str, Any]:
    """Return a key's unit for the JSON Schema."""
    return {"x-unit": name}


def require_consumer_group(name: str) -> str:
    """Return a valid name of a consumer group unchanged.

    Kafka accepts nearly all names except an empty one. This check also refuses mistakes, such as an unset variable, and names that do not
    fit into one log line.

    Raises:
        ConfigurationError: the name is not valid.
    """
    if not name.strip():
        raise ConfigurationError(
            "a consumer group without a name: give it one, such as billing; is a variable empty?"
        )
    if not name.isprintable():
        raise ConfigurationError(
            f"the consumer group {name!r} has characters that cannot be printed: choose another name"
        )
    if (size := len(name.encode())) > GROUP_BYTES_MAX:
        raise ConfigurationError(
            f"the consumer group {name[:40]!r}… has a name of {size} bytes: choose one of at most {GROUP_BYTES_MAX}"
        )
    return name
