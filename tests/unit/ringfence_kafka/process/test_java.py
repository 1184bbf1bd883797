from pathlib import Path

import pytest

from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('java version "1.8.0_392"\n', 8),
        ('openjdk version "22-ea" 2024-03-19\n', 22),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx="1"\nopenjdk version "17.0.9" 2023-10-17\nOpenJDK Runtime', 17),
        ("no such thing", None),
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
    packages = r"openjdk-17-jre-headless.*java-17-openjdk-headless.*openjdk@17"
    with pytest.raises(PrerequisiteError, match=packages):
        java.find({"PATH": ""})


def test_java_home_first(tmp_path: Path) -> None:
    """JAVA_HOME takes precedence over PATH. Without a Java in it, Spark does not use PATH, and Kafka does."""
    home = _fake_java(tmp_path / "home", 'openjdk version "21" 2023-09-19')
    other = _fake_java(tmp_path / "other", 'openjdk version "17.0.15" 2025-04-15')
    path, gone = str(other.parent), str(tmp_path / "gone")

    assert java.find({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}) == home
    assert java.find({"JAVA_HOME": gone, "PATH": path}) == other
    assert java.find({"PATH": path}, of="Spark", home_only=True) == other
    fault = f"^JAVA_HOME={gone} has no bin/java that can be run, and Spark looks for no"
    with pytest.raises(PrerequisiteError, match=fault):
        java.find({"JAVA_HOME": gone, "PATH": path}, of="Spark", home_only=True)


@pytest.mark.parametrize(
    ("says", "complaint"),
    [
        ('openjdk version "1.8.0_392"', "is Java 8, Kafka needs 17 or newer: install"),
        ("no runtime present", r".*did not report its version \(no runtime present\)"),
    ],
)
def test_no_java_that_serves(tmp_path: Path, says: str, complaint: str) -> None:
    """An old Java, or a program that is none, causes an error with its answer and the package to install."""
    program = _fake_java(tmp_path, says)

    with pytest.raises(PrerequisiteError, match=f"{program} {complaint}"):
        java.find({"PATH": str(program.parent)})
