"""Java's class data sharing: with an archive of its classes a broker starts in half of the time and of the CPU.

The JVM ignores an archive of another Java or of other jars.
"""

import hashlib
from pathlib import Path
from typing import Final

from app.embedded import jars

_NAME: Final = "classes-{}-{}.jsa"
"""By the folder of the jars, which names Kafka's version, and a digest of Java's and theirs."""
_SILENT: Final = "-Xlog:cds=off"
"""Java option that silences the message about an ignored archive, which is harmless."""


def archive(program: Path, class_path: str) -> Path:
    """Return the archive of these classes for this Java."""
    java = program.resolve()
    found = java.stat()
    key = f"{java} {found.st_size} {found.st_mtime_ns} {class_path}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return jars.cache_directory() / _NAME.format(Path(class_path).parent.name, digest)


def archives(class_path: str) -> str:
    """Return a pattern of all archives of a class path, of which one is kept."""
    return _NAME.format(Path(class_path).parent.name, "*")


def reading(program: Path, class_path: str) -> list[str]:
    """Options of a JVM that loads the archive, if there is one."""
    found = archive(program, class_path)
    return [f"-XX:SharedArchiveFile={found}", _SILENT] if found.is_file() else []


def writing(target: Path) -> list[str]:
    """Options of a JVM that archives its loaded classes when it ends in order."""
    return [f"-XX:ArchiveClassesAtExit={target}", _SILENT]
