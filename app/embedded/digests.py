"""Digests of the embedded broker's jars: fetched jars must equal the tested ones, byte for byte.

``python -m app.embedded.digests 4.4.0`` adds a version, with Ivy comparing each jar with the registry's
checksum.
"""

import dataclasses
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from ringfence_kafka.errors import PrerequisiteError

_FILE: Final = Path(__file__).with_name("jars.sha256")
"""Output of ``sha256sum`` for the jars of all versions: a digest and a file name in each line."""


@cache
def known() -> Mapping[str, str]:
    """Return file name → SHA-256 for the jars of all known versions."""
    lines = (line.split() for line in _FILE.read_text("utf-8").splitlines())
    return {name: digest for digest, name in lines}


def require(folder: Path, expected: Mapping[str, str], title: str, ivy_cache: Path) -> None:
    """Compare the jars in a folder with their ``expected`` SHA-256, by file name.

    ``ivy_cache`` is deleted if a jar differs, so that the next try fetches all jars again.

    Raises:
        PrerequisiteError: A jar differs, or is unknown.
    """
    strange = sorted(name for name, digest in of_folder(folder).items() if expected.get(name) != digest)
    if not strange:
        return
    shutil.rmtree(ivy_cache, ignore_errors=True)
    raise PrerequisiteError(
        f"The jars of {title} were fetched, but {', '.join(strange)} differ from the known digests "
        "(app/embedded/jars.sha256), so none is used. Look at the mirror or proxy, and run again"
    )


def of_folder(folder: Path) -> dict[str, str]:
    """Return file name → SHA-256."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def add(folder: Path) -> None:
    """Add the digests of a folder's jars to the file.

    Raises:
        PrerequisiteError: The file has another digest for a jar, although the registry never changes a jar.
    """
    found = of_folder(folder)
    before = dict(known()) if _FILE.exists() else {}
    if unlike := sorted(name for name in found.keys() & before.keys() if found[name] != before[name]):
        raise PrerequisiteError(
            f"{', '.join(unlike)}: another digest than {_FILE.name} has: do not trust this registry"
        )
    lines = (f"{digest}  {name}\n" for name, digest in sorted((before | found).items()))
    _FILE.write_text("".join(lines), "utf-8")
    known.cache_clear()


def main() -> None:
    """Fetch the jars of the versions on the command line, and add their digests."""
    from app.embedded import jars

    for version in sys.argv[1:]:
        unpinned = dataclasses.replace(jars.kafka(version), digests=None)
        with tempfile.TemporaryDirectory() as folder:  # the user's cache must only have known jars
            add(jars.resolve({**os.environ, "RINGFENCE_CACHE": folder}, unpinned))


if __name__ == "__main__":
    main()
