"""Digests of the embedded broker's jars: what was fetched must be, byte for byte, what was tested.

``python -m app.embedded.digests 4.4.0`` adds a version. Ivy compares each jar with the registry's own checksum then.
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
"""As ``sha256sum`` writes it: digest and file name, a jar a line, those of all versions."""


@cache
def known() -> Mapping[str, str]:
    """SHA-256 by file name, of the jars of all versions that are known."""
    lines = (line.split() for line in _FILE.read_text("utf-8").splitlines())
    return {name: digest for digest, name in lines}


def require(folder: Path, expected: Mapping[str, str], title: str, ivy_cache: Path) -> None:
    """Compare the jars in a folder with their digests, by file name.

    Args:
        folder: Holds the jars, and nothing else.
        expected: SHA-256 by file name; may have more names than the folder.
        title: Name of the bundle.
        ivy_cache: Removed when a jar differs, so that the next try fetches all again.

    Raises:
        PrerequisiteError: a jar differs, or nobody knows it.
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
    """SHA-256 by file name."""
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def add(folder: Path) -> None:
    """Write the digests of a folder's jars into the file.

    Raises:
        PrerequisiteError: the file has a jar with another digest; the registry never changes one.
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
    """Fetch the jars of the versions that the command line names, and add their digests."""
    from app.embedded import jars

    for version in sys.argv[1:]:
        unpinned = dataclasses.replace(jars.kafka(version), digests=None)
        with tempfile.TemporaryDirectory() as folder:  # the cache is for what is known
            add(jars.resolve({**os.environ, "RINGFENCE_CACHE": folder}, unpinned))


if __name__ == "__main__":
    main()
