"""An archive of the broker's classes, as a JVM has them in memory: with it a broker starts in half of the time and of the CPU.

It is Java's own class data sharing. An archive that does not fit, because Java or the jars are others now, is passed over by the JVM.
"""

import hashlib
from pathlib import Path
from typing import Final

from app.embedded import jars

_NAME: Final = "classes-{}-{}.jsa"
"""By the folder of the jars, which names Kafka's version, and a digest of Java's and theirs."""
_SILENT: Final = "-Xlog:cds=off"
"""An archive that is passed over is no fault."""


def archive(program: Path, class_path: str) -> Path:
    """Where that of these classes is kept for this Java."""
    java = program.resolve()
    found = java.stat()
    key = f"{java} {found.st_size} {found.st_mtime_ns} {class_path}"
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    return jars.cache_directory() / _NAME.format(Path(class_path).parent.name, digest)


def archives(class_path: str) -> str:
    """The pattern of the names of a class path's archives: one is kept, of the Java that set up last."""
    return _NAME.format(Path(class_path).parent.name, "*")


def reading(program: Path, class_path: str) -> list[str]:
    """Options of a JVM that loads what is archived; none where there is no archive."""
    found = archive(program, class_path)
    return [f"-XX:SharedArchiveFile={found}", _SILENT] if found.is_file() else []


def writing(target: Path) -> list[str]:
    """Options of a JVM that archives what it has loaded when it ends in order."""
    return [f"-XX:ArchiveClassesAtExit={target}", _SILENT]
