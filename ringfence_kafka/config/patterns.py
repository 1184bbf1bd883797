"""Patterns among the addresses: entries that only set defaults for matching names.

The most specific wins, key by key: the entry of the name itself, then patterns with more literal characters before
those with fewer, then ``[address_defaults]``. Of two equally specific patterns the later in the file wins.
"""

import fnmatch
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_WILDCARDS: Final = frozenset("*?[")
_POSSIBLE: Final = re.compile(r"([a-zA-Z0-9._*?-]|\[!?[a-zA-Z0-9._-]+\])+")
"""Kafka's legal characters, wildcards, and sets that are closed."""


def resolve(defaults: Mapping[str, Any], entries: Sequence[Any]) -> tuple[Any, ...]:
    """The literal addresses with everything put under them that applies; what is no table stays as it is."""
    patterns = [entry for entry in entries if is_pattern(entry)]
    patterns.sort(key=_specificity)  # stable: the later of equals stays later
    resolved = []
    for entry in entries:
        if is_pattern(entry):
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            resolved.append({**defaults, **entry} if isinstance(entry, dict) else entry)
            continue
        merged = dict(defaults)
        for pattern in patterns:
            if fnmatch.fnmatchcase(entry["name"], pattern["name"]):
                merged |= pattern
        resolved.append(merged | entry)
    return tuple(resolved)


def is_pattern(entry: object) -> bool:
    """Whether an entry's name has a wildcard: ``*``, ``?`` or ``[``."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return isinstance(name, str) and has_wildcard(name)


def has_wildcard(name: str) -> bool:
    """Whether a name stands for all that match."""
    return not _WILDCARDS.isdisjoint(name)


def can_match(pattern: str) -> bool:
    """Whether there are topic names that it matches."""
    return _POSSIBLE.fullmatch(pattern) is not None


def _specificity(pattern: Mapping[str, Any]) -> int:
    """Literal characters of the pattern; a set in brackets counts as none."""
    literal = re.sub(r"\[[^]]*\]|[*?]", "", pattern["name"])
    return len(literal)
