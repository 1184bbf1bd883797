"""Digest of the C sources. The built core carries it, because an older build would decide by older rules."""

import hashlib
from pathlib import Path


def digest(folder: Path) -> str:
    """Return the SHA-256 of all C sources in a folder, in hexadecimal; empty = no sources."""
    files = sorted([*folder.glob("*.c"), *folder.glob("*.h")])
    found = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        found.update(b"%b %d\n" % (file.name.encode(), len(content)))
        found.update(content)
    return found.hexdigest() if files else ""
