"""The native core in C: parses, judges and builds record batches without an object for each record.

Python is the reference. It processes what the core leaves to it, and everything without a core or with ``RINGFENCE_NATIVE=off``.
"""

import importlib
import os
from pathlib import Path
from types import ModuleType
from typing import Final

from native.sources import digest

VARIABLE: Final = "RINGFENCE_NATIVE"
_INTERFACE: Final = 6
"""Version in src/module.c. A core of an earlier build may have another one."""
_SOURCES: Final = Path(__file__).parent / "src"
"""Folder of the sources. An installed wheel has none: its core comes from the same build as its Python."""
_VALUES: Final = {"": True, "on": True, "off": False}


def _load() -> tuple[ModuleType | None, str]:
    if not _VALUES.get(os.environ.get(VARIABLE, ""), True):
        return None, f"Python, by {VARIABLE}=off"
    try:
        _core = importlib.import_module("native._core")  # it may be missing
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        return None, "Python: the native core is not built" + (
            "" if missing else f" for this machine ({error})"
        )
    if getattr(_core, "INTERFACE", None) != _INTERFACE:
        return None, "Python: the native core is of another version"
    if (sources := digest(_SOURCES)) and getattr(_core, "SOURCES", "") != sources:
        return None, "Python: the native core was built from other sources"
    return _core, "native core"


def fault() -> str | None:
    """Return the fault of the environment variable with its remedy; None = no fault."""
    value = os.environ.get(VARIABLE, "")
    return (
        None
        if value in _VALUES
        else f"environment: {VARIABLE} = {value!r} is neither on nor off: unset it, or set one of these"
    )


core, spoken = _load()
"""The extension, None = Python does everything; and the same in words."""
