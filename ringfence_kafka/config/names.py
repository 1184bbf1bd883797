"""Names that other programs choose, and what they may be."""

from typing import Final

from ringfence_kafka.errors import ConfigurationError

GROUP_BYTES_MAX: Final = 1_000
"""Of a consumer group's name. Kafka's own bound is some 32,000, for the name and what Ringfence makes of it."""


def require_consumer_group(name: str) -> str:
    """The name, if a consumer group may be called so.

    Kafka takes nearly everything but an empty name. What is refused beyond that is a mistake, such as a variable that is not set,
    or could not be told in one line of a log.

    Raises:
        ConfigurationError: it may not.
    """
    if not name.strip():
        raise ConfigurationError(
            "a consumer group without a name: give it one, such as billing; is a variable empty?"
        )
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"the consumer group {name!r} has bytes that are not UTF-8: choose another name"
        ) from error
    if not name.isprintable():
        raise ConfigurationError(
            f"the consumer group {name!r} has characters that cannot be printed: choose another name"
        )
    if size > GROUP_BYTES_MAX:
        raise ConfigurationError(
            f"the consumer group {name[:40]!r}… has a name of {size} bytes: choose one of at most {GROUP_BYTES_MAX}"
        )
    return name
