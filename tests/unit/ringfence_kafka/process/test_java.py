from pathlib import Path

import pytest

from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_392"\n', 8),
        ('openjdk version "21" 2023-09-19\n', 21),
        ('openjdk version "22-ea" 2024-03-19\n', 22),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "17.0.9" 2023-10-17\n', 17),
        ("no such thing", None),
        ('java version "seventeen"', None),
        ("", None),
    ],
)
def test_feature_version(text: str, expected: int | None) -> None:
    """The feature number is read from every form of ``java -version``, and from nothing else."""
    assert java.feature_version(text) == expected


def _fake_java(folder: Path, says: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    program.chmod(0o755)
    return program


def test_nothing_found() -> None:
    """A missing Java causes an error that names the packages to install."""
    with pytest.raises(
        PrerequisiteError, match=r"openjdk-17-jre-headless.*java-17-openjdk-headless.*openjdk@17"
    ):
        java.find({"PATH": ""})


def test_java_home_first(tmp_path: Path) -> None:
    """JAVA_HOME takes precedence over PATH."""
    home = _fake_java(tmp_path / "home", 'openjdk version "21" 2023-09-19')
    other = _fake_java(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15')

    assert java.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == home


def test_java_home_without_java(tmp_path: Path) -> None:
    """A JAVA_HOME that was removed since does not hide the Java on PATH."""
    other = _fake_java(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15')

    assert java.find({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(other.parent)}) == other


def test_too_old(tmp_path: Path) -> None:
    """An old Java causes an error with its version, the version needed, and the package to install."""
    old = _fake_java(tmp_path, 'openjdk version "1.8.0_392"')

    with pytest.raises(PrerequisiteError, match=f"{old} is Java 8, Kafka needs 17 or newer: install"):
        java.find({"PATH": str(old.parent)})


def test_garbage(tmp_path: Path) -> None:
    """A program that is not Java causes an error with its answer."""
    strange = _fake_java(tmp_path, "no runtime present")

    with pytest.raises(PrerequisiteError, match=r"did not report its version \(no runtime present\)"):
        java.find({"PATH": str(strange.parent)})


def test_spark_takes_java_home_alone(tmp_path: Path) -> None:
    """Spark ignores PATH if JAVA_HOME leads nowhere, so the error names JAVA_HOME instead of a shell's complaint."""
    other = _fake_java(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15')
    gone = str(tmp_path / "gone")

    with pytest.raises(
        PrerequisiteError, match=f"^JAVA_HOME={gone} has no bin/java that can be run, and Spark looks for no"
    ):
        java.find({"JAVA_HOME": gone, "PATH": str(other.parent)}, of="Spark", home_only=True)
    assert java.find({"PATH": str(other.parent)}, of="Spark", home_only=True) == other
