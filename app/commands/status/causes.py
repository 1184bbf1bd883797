"""Problems with one cause become one finding that names all that it keeps from working. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from app.commands.status.formatting import waiting
from app.commands.status.model import Finding
from ringfence_kafka.aiokafka_patches.throttling import quotas
from ringfence_kafka.wording import first_of

PASSES_S: Final = 60.0
"""Rebalances, openings, leases that run out and first attempts are over by then."""
SHOWN_MAX: Final = 4
"""Names in a finding; the rest is counted."""


class Problem(NamedTuple):
    """A problem of one lane, worker or partition."""

    kind: str
    """Such as ``lane``, or ``partition`` behind its consumer group."""
    name: str
    what: str
    do: str
    command: str
    stands: bool
    waiting: int = 0
    """The most messages that can wait."""


def merged(problems: Iterable[Problem]) -> Iterator[Finding]:
    """Yield a finding for all problems of a kind that differ in their names alone."""
    found: dict[Problem, list[Problem]] = {}
    for problem in problems:
        found.setdefault(problem._replace(name="", waiting=0), []).append(problem)
    for cause, items in found.items():
        offsets = sum(item.waiting for item in items)
        behind = f"; {waiting(offsets)}" if offsets else ""
        where = named(cause.kind, list(dict.fromkeys(item.name for item in items)))
        yield Finding(where, f"{cause.what}{behind}", cause.do, cause.command, cause.stands)


def named(kind: str, names: list[str]) -> str:
    """``lane a``, ``lanes a, b``, ``lanes a, b, c, d and 5 more``."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{plural} {first_of(names, SHOWN_MAX)}"


def quota(throttled: Mapping[str, float]) -> tuple[str, str]:
    """Return the effect of a quota and the way out. No seconds are named: workers with one quota are one finding."""
    what = f"brokers delay {' and '.join(throttled)} requests: a quota delays messages, and none is lost"
    do = f"raise {quotas(throttled)} of the user or client.id that the log names, or expect the lag to grow"
    return what, do
