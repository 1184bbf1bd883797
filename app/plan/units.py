"""Numbers with units, as they are typed and as they are shown. Pure."""

import math
import re
from typing import Final

_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_COUNTS: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_BYTES: Final = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_STEPS: Final = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_TIMES: Final = ((48 * 3600.0, 86_400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))


def count_of(text: str) -> float:
    """Of 5000, 5k, 1.5M, 2G.

    Raises:
        ValueError: it is none.
    """
    return _read(text, _COUNTS, "no number: write for example 500, 5k, 1.5M or 2G")


def bytes_of(text: str) -> float:
    """Of 100, 100B, 2KiB, 1MB.

    Raises:
        ValueError: it is none.
    """
    return _read(text, _BYTES, "no size: write for example 100B, 2KiB, 1.5MB or 4GiB")


def _read(text: str, units: dict[str, int], otherwise: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is {otherwise}")
    return float(found[1]) * units[found[2]]


def counted(value: float) -> str:
    """Rounded up, and to three digits where there are more than four: a plan is no account."""
    return f"{math.ceil(_three(value)):,}"


def sized(value: float) -> str:
    """In the largest unit of which there is one."""
    for name, size in _STEPS:
        if value >= size:
            shown = value / size
            return f"{shown:.0f} {name}" if shown >= 10 else f"{shown:.1f} {name}"  # noqa: PLR2004 - digits
    return f"{value:.0f} B"


def lasting(seconds: float) -> str:
    """In the largest unit of which there are two."""
    if seconds == math.inf:
        return "never"
    for least, unit, name in _TIMES:
        if seconds >= least:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"  # noqa: PLR2004 - digits


def _three(value: float) -> float:
    if value < 10_000:  # noqa: PLR2004 - four digits are read at a glance
        return value
    step = float(10 ** (math.floor(math.log10(value)) - 2))
    return math.ceil(value / step) * step
