"""Java's class data sharing: an archive of classes halves the time and the CPU of a broker's start.

The JVM ignores an archive from another Java or other jars.
"""

import hashlib
from pathlib import Path
from typing import Final

from app.embedded import jars

_NAME: Final = "classes-{}-{}.jsa"
"""Name of an archive: folder of the jars, which names Kafka's version, and digest of Java and jars."""
_SILENT: Final = "-Xlog:cds=off"
"""Java option that suppresses a harmless message about an ignored archive."""


def archive(program: Path, class_path: str) -> Path:
    """Return the archive file of these classes for this Java."""
    java = program.resolve()
    found = java.stat()
    key = f"{java} {found.st_size} {found.st_mtime_ns} {class_path}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return jars.cache_directory() / _NAME.format(Path(class_path).parent.name, digest)


def archives(class_path: str) -> str:
    """Return a pattern for all archives of a class path, only one of which is kept."""
    return _NAME.format(Path(class_path).parent.name, "*")


def reading(program: Path, class_path: str) -> list[str]:
    """Return the options of a JVM that loads the archive, if there is one."""
    found = archive(program, class_path)
    return [f"-XX:SharedArchiveFile={found}", _SILENT] if found.is_file() else []


def writing(target: Path) -> list[str]:
    """Return the options of a JVM that archives its loaded classes at an orderly end."""
    return [f"-XX:ArchiveClassesAtExit={target}", _SILENT]
