"""Merges problems with one cause into one finding that names everything affected. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from app.commands.status.formatting import waiting
from app.commands.status.model import Finding
from ringfence_kafka.aiokafka_patches.throttling import quotas
from ringfence_kafka.wording import first_of

PASSES_S: Final = 60.0
"""Time in which rebalances, lane openings, lease expiries and first attempts should end, in seconds."""
SHOWN_MAX: Final = 4
"""Number of names in a finding; others are counted."""


class Problem(NamedTuple):
    """A finding without its place; see :class:`app.commands.status.model.Finding`."""

    what: str
    do: str = ""
    command: str = ""
    stands: bool = False


def merged(kind: str, problems: Iterable[tuple[str, Problem, int]]) -> Iterator[Finding]:
    """Yield one finding for all equal problems.

    Args:
        kind: Kind of the objects, such as ``lane``, or consumer group with ``partition``.
        problems: Name of the object, its problem, and an upper bound of the waiting messages.
    """
    found: dict[Problem, list[tuple[str, int]]] = {}
    for name, problem, offsets in problems:
        found.setdefault(problem, []).append((name, offsets))
    for problem, items in found.items():
        offsets = sum(offsets for _, offsets in items)
        behind = f"; {waiting(offsets)}" if offsets else ""
        where = named(kind, list(dict.fromkeys(name for name, _ in items)))
        yield Finding(where, *problem._replace(what=f"{problem.what}{behind}"))


def named(kind: str, names: list[str]) -> str:
    """Return ``lane a``, ``lanes a, b`` or ``lanes a, b, c, d and 5 more``."""
    if len(names) == 1:
        return f"{kind} {names[0]}"
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{plural} {first_of(names, SHOWN_MAX)}"


def quota(throttled: Mapping[str, float]) -> tuple[str, str]:
    """Return the effect of a quota, and the fix. Without seconds, workers with one quota share a finding."""
    what = f"brokers delay {' and '.join(throttled)} requests: a quota delays messages, and none is lost"
    do = f"raise {quotas(throttled)} of the user or client.id that the log names, or expect the lag to grow"
    return what, do
