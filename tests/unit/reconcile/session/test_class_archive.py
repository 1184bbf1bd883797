"""Files that a session leaves for a quicker start of the next one, used only if they fit."""

import fcntl
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, PropertyMock

import pytest
from pyspark import SparkConf

from reconcile.session.class_archive import ClassArchive, fetching_alone
from reconcile.session.session import configured

PACKAGES = "org.apache.spark:connector:4.0.0"
RECORD = "-XX:+RecordDynamicDumpInfo"


@pytest.fixture
def ivy(tmp_path: Path) -> Path:
    """Return a folder as Ivy leaves it, beside a Spark that brings one of its jars along, in another version."""
    for name in (
        "ivy/jars/org.apache.spark_connector_2.13-4.0.0.jar", "ivy/jars/org.apache.kafka_kafka-clients-3.9.0.jar",
        "ivy/jars/org.slf4j_slf4j-api-2.0.16.jar", "spark/jars/slf4j-api-2.0.17.jar", "java",
    ):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return tmp_path / "ivy"


def _quick(ivy: Path, packages: str = PACKAGES, **environ: str) -> ClassArchive:
    return ClassArchive(ivy, packages, ivy.parent / "java", ivy.parent / "spark", environ)


def _session(ivy: Path) -> Any:
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.jars", ",".join(f"file:{path}" for path in sorted((ivy / "jars").iterdir())))
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


def _kept(ivy: Path) -> ClassArchive:
    found = _quick(ivy)
    if found.class_path is None:
        found.keep(_session(ivy), lambda: False)
    return _quick(ivy)


def _archived(ivy: Path, content: bytes = b"classes") -> Path:
    archive = _kept(ivy)._archive()
    archive.write_bytes(content)
    return archive


def test_one_fetches_at_a_time(tmp_path: Path) -> None:
    """Ivy fails when two processes fill an empty cache: the second waits until the first has Spark's connector.

    A folder that cannot be made does not keep Spark from starting: Ivy names the problem.
    """
    folder = tmp_path / "home" / "ivy"
    with fetching_alone(folder), (folder / "ringfence.lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (folder / "ringfence.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_ivy_is_asked_once(ivy: Path) -> None:
    """Ivy is asked once: the next session takes all of its jars that Spark does not bring along.

    It is asked again for other packages, for a missing or changed jar, and for an unreadable list.
    """
    first = _quick(ivy)
    second = _kept(ivy)

    assert (first.class_path, first.options) == (None, "")
    assert second.class_path == ":".join(
        str(ivy / "jars" / name)
        for name in ("org.apache.kafka_kafka-clients-3.9.0.jar", "org.apache.spark_connector_2.13-4.0.0.jar")
    )
    assert second.options == RECORD
    assert _quick(ivy, "org.apache.spark:connector:4.0.1").class_path is None
    jar = ivy / "jars" / "org.apache.kafka_kafka-clients-3.9.0.jar"
    for damage in (lambda: jar.write_text("cut"), jar.unlink):
        damage()
        assert _quick(ivy).class_path is None
    [listed] = (ivy / "ringfence").iterdir()
    for text in ("", "[]", '{"packages": 1}', '{"packages": "", "jars": [[1, 2]]}'):
        listed.write_text(text)
        assert _quick(ivy).class_path is None


def test_an_archive_is_of_its_jars_and_of_its_java(ivy: Path) -> None:
    """An archive is made again if its jars or its Java have changed; an empty one means that this Java cannot.

    Spark gets the connector in the class path instead of a package, and the archive before what few records need.
    Java would end over a folder with files in its class path.
    """
    archive = _archived(ivy)
    environ = {"SPARK_CONF_DIR": str(ivy.parent / "none")}
    told = configured("local[*]", submitted=False, environ=environ, records=0, quick=_quick(ivy))
    options = told.get("spark.driver.extraJavaOptions") or ""
    assert told.get("spark.jars.packages") is None
    assert told.get("spark.driver.extraClassPath") == _quick(ivy).class_path
    assert options.split()[0] == f"-XX:SharedArchiveFile={archive}" == _quick(ivy).options
    assert "-XX:+UseSerialGC" in options

    conf = ivy.parent / "conf"
    conf.mkdir()
    assert _quick(ivy, SPARK_CONF_DIR=str(conf)).options != ""
    (conf / "log4j2.xml").touch()
    assert _quick(ivy, SPARK_CONF_DIR=str(conf)).options == ""
    assert _quick(ivy, HADOOP_CONF_DIR="/etc/hadoop").options == ""

    for path in (ivy.parent / "spark/jars/slf4j-api-2.0.17.jar", ivy.parent / "java"):
        os.utime(path, ns=(0, 0))
        assert _quick(ivy).options == RECORD
        archive = _archived(ivy)
        assert _quick(ivy).options == f"-XX:SharedArchiveFile={archive}"

    archive.write_bytes(b"")
    assert _quick(ivy).options == ""


@pytest.mark.parametrize("stopped", [False, True])
def test_an_archive_that_cannot_be_made_is_tried_once(ivy: Path, *, stopped: bool) -> None:
    """An archive that cannot be made is tried once, or again if a signal ended the JVM. Nothing is raised, because the run was successful."""
    _kept(ivy)
    gone = MagicMock()
    type(gone.sparkContext._gateway).jvm = PropertyMock(side_effect=ConnectionRefusedError)
    _quick(ivy).keep(gone, lambda: stopped)

    assert _quick(ivy).options == (RECORD if stopped else "")


def test_what_somebody_has_set_counts(tmp_path: Path) -> None:
    """Settings of the user prevent a quicker start, and so do paths that a shell or Java would read differently."""
    java = tmp_path / "java"
    for theirs in (
        {"spark.driver.extraJavaOptions": "-Xss4m"}, {"spark.jars": "a.jar"}, {"spark.driver.extraClassPath": "/x"},
        {"spark.jars.ivy": "/my ivy"}, {"spark.jars.ivy": "/a:b"},
    ):  # fmt: skip
        assert ClassArchive.for_packages(theirs, PACKAGES, java, {}) is None
    assert ClassArchive.for_packages({}, PACKAGES, None, {}) is None
    assert ClassArchive.for_packages({"spark.jars.ivy": str(tmp_path)}, PACKAGES, java, {}) is not None
