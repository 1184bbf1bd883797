"""Errors for people. Each names the problem, then the remedy.

Exit codes are those of the command line: 0 ok, 1 what was checked is not ok, 2 could not run, 3 unknown because evidence is gone.
"""

from typing import ClassVar

from ringfence_kafka.broker_limits import ADVICE


class RingfenceError(Exception):
    """Base of all errors whose text is meant for an operator; it has the exit code of the process."""

    exit_code: ClassVar[int] = 2


class ConfigurationError(RingfenceError):
    """The configuration cannot be used as it is written."""


class BrokerUnavailableError(RingfenceError):
    """No broker answered at the configured address within the time limit, or all deny access."""


class PrerequisiteError(RingfenceError):
    """The machine lacks something that Ringfence needs: Java, a free port, a writable folder."""


class TopicError(RingfenceError):
    """A topic does not exist or cannot be used as it is configured."""

    exit_code: ClassVar[int] = 1


class MissingTopicError(TopicError):
    """A topic does not exist, or this user may not read it. The command has no result, and its exit code differs from those of results."""

    exit_code: ClassVar[int] = 2


class ForeignChangelogError(RingfenceError):
    """A changelog has the rings of another address whose topics have the same names."""

    def __init__(self, changelog: str, theirs: tuple[str, str], ours: tuple[str, str]) -> None:
        """``theirs`` and ``ours``: app ID and address; ``changelog``: topic and partition."""
        super().__init__(
            f"{changelog} holds the rings of address {theirs[1]!r} of app.id {theirs[0]!r}, not those of "
            f"{ours[1]!r} of {ours[0]!r}: both use the same topic names and transactional IDs, and would "
            "fence each other. Give one of the two another app.id, or its address another name"
        )


class RepairError(RingfenceError):
    """A redrive or a drop of refused records cannot continue."""


class InvariantError(AssertionError):
    """An invariant is violated, which is a defect of Ringfence. The component restarts from its written state."""


def require(holds: bool, *what: object) -> None:
    """Check an invariant. ``what`` describes the values in the error.

    Raises:
        InvariantError: it is violated.
    """
    if not holds:
        raise InvariantError(" ".join(map(str, what)))


def named(error: BaseException) -> str:
    """Return an error's class and text, with advice if a broker limit is the cause."""
    try:
        text = str(error)
    except Exception:
        text = ""
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}: {text}: {named(error.exceptions[0])}"  # as a TaskGroup raises it
    kind = type(error).__name__
    if advice := ADVICE.get(kind):
        return f"{kind}: {advice}"  # the text of a broker's refusal only repeats its class
    if not text:
        return kind
    return text if text.startswith(kind) else f"{kind}: {text}"  # texts of aiokafka start with the class


def said(error: BaseException) -> str:
    """Return an error on one line. Ringfence's own errors need no class name."""
    return " ".join((str(error) if isinstance(error, RingfenceError) else named(error)).split())


def unforeseen(error: Exception) -> str:
    """Return the line below the traceback of an unexpected error."""
    return f"internal error, please report it with the lines above: {type(error).__name__}: {error}"
