import dataclasses
import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from app.embedded import digests, jars
from app.embedded.jars import KAFKA_VERSION, VERSION_VARIABLE, Bundle
from ringfence_kafka.errors import PrerequisiteError

ROOT = Path(__file__).parents[2]
LIMIT_S = 180

SETTINGS = """
<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers>
    <filesystem name="mirror" m2compatible="true">
      <ivy pattern="{root}/[organisation]/[module]-[revision].pom"/>
      <artifact pattern="{root}/[organisation]/[module]-[revision].[ext]"/>
    </filesystem>
  </resolvers>
</ivysettings>
"""
POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>
</project>
"""

TINY = hashlib.sha256(b"jar").hexdigest()
FETCH = f"""
import dataclasses
from app.embedded import jars
names = ("kafka_2.13-{KAFKA_VERSION}.jar", "log4j-slf4j-impl-2.24.3.jar")
print(jars.resolve(bundle=dataclasses.replace(jars.kafka("{KAFKA_VERSION}"), digests=dict.fromkeys(names, "{TINY}"))))
"""


def _bundle(**expected: str) -> Bundle:
    """Return the broker, with the digests of the mirror's jars; ``expected``: other digests."""
    names = {"kafka": f"kafka_2.13-{KAFKA_VERSION}.jar", "log4j": "log4j-slf4j-impl-2.24.3.jar"}
    known = {name: expected.get(key, TINY) for key, name in names.items()}
    return dataclasses.replace(jars.kafka(KAFKA_VERSION), digests=known)


@pytest.fixture
def mirror(tmp_path: Path) -> dict[str, str]:
    """Return an environment with a cache of its own and a mirror in a folder that has two tiny jars and no others."""
    root = tmp_path / "mirror"
    for group, name, version in (
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
    ):
        folder = root / group.replace(".", "/")
        folder.mkdir(parents=True)
        (folder / f"{name}-{version}.pom").write_text(POM.format(group=group, name=name, version=version))
        (folder / f"{name}-{version}.jar").write_bytes(b"jar")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(SETTINGS.format(root=root))
    java = Path(subprocess.run(["which", "java"], capture_output=True, text=True, check=True).stdout).parent
    return {
        "PATH": str(java),
        "RINGFENCE_CACHE": str(tmp_path / "cache"),
        "RINGFENCE_IVY_SETTINGS": str(settings),
    }


def test_fetched_once(mirror: dict[str, str]) -> None:
    """Jars of the mirror are fetched whole; the second call does not even need Java; nothing else is left over."""
    folder = jars.resolve(mirror, _bundle())

    assert sorted(path.name for path in folder.iterdir()) == [
        "kafka_2.13-4.1.0.jar",
        "log4j-slf4j-impl-2.24.3.jar",
    ]
    assert jars.resolve(mirror | {"PATH": "", VERSION_VARIABLE: KAFKA_VERSION}) == folder
    assert sorted(path.name for path in folder.parent.iterdir()) == [".kafka-4.1.0.lock", "kafka-4.1.0"]


def test_two_at_once(mirror: dict[str, str]) -> None:
    """Both of two simultaneous processes succeed, and one of them fetches."""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", FETCH],
            cwd=ROOT,
            env=mirror,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [popen.communicate(timeout=LIMIT_S) for popen in both]

    assert [popen.returncode for popen in both] == [0, 0], said
    assert [output for output, _ in said] == [f"{mirror['RINGFENCE_CACHE']}/kafka-4.1.0\n"] * 2
    assert sorted("Fetching" in errors for _, errors in said) == [False, True]


def test_not_to_be_had(mirror: dict[str, str], tmp_path: Path) -> None:
    """The error for a jar that the mirror lacks has Ivy's words and the remedy, and no half folder stays."""
    next((tmp_path / "mirror").rglob("log4j*.jar")).unlink()

    with pytest.raises(PrerequisiteError, match=r"(?s)RINGFENCE_IVY_SETTINGS.*log4j-slf4j-impl"):
        jars.resolve(mirror, _bundle())

    assert not (tmp_path / "cache" / "kafka-4.1.0").exists()
    assert not list((tmp_path / "cache").glob(".kafka-4.1.0-*"))


def test_another_jar_than_the_known_one(mirror: dict[str, str], tmp_path: Path) -> None:
    """A wrong jar of the same name is named and not kept. The real one is fetched the next time."""
    with pytest.raises(PrerequisiteError, match=r"fetched, but kafka_2\.13-4\.1\.0\.jar differ"):
        jars.resolve(mirror, _bundle(kafka="0" * 64))

    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".kafka-4.1.0.lock"]
    assert jars.resolve(mirror, _bundle()).is_dir()


def test_the_broker_of_the_tests_is_what_is_known() -> None:
    """The jars that the tests run on are those that the file names."""
    found = digests.of_folder(jars.resolve())

    assert {name: digests.known().get(name) for name in found} == found


@pytest.mark.parametrize(("version", "said"), [("3.8.1", "--kafka-version"), (None, VERSION_VARIABLE)])
def test_a_version_that_nobody_knows(version: str | None, said: str) -> None:
    """An unknown version fetches nothing; the error names its source and the known versions."""
    with pytest.raises(
        PrerequisiteError, match=rf"^{said}: Kafka 3\.8\.1 .*: name one of 3\.9\.1, .*4\.1\.0"
    ):
        jars.chosen_version(version, {VERSION_VARIABLE: "3.8.1"})


def test_which_version() -> None:
    """The version comes from the command line, else the environment, else the default, which the documents name."""
    assert jars.chosen_version("3.9.1", {VERSION_VARIABLE: "4.0.2"}) == "3.9.1"
    assert jars.chosen_version(None, {VERSION_VARIABLE: "4.0.2"}) == "4.0.2"
    assert jars.chosen_version(None, {VERSION_VARIABLE: ""}) == jars.chosen_version(None, {}) == KAFKA_VERSION
    assert f"{VERSION_VARIABLE}, else {KAFKA_VERSION}." in (ROOT / "docs" / "cli.md").read_text()


def test_versions_in_their_order() -> None:
    """Versions are ordered as numbers, not as text; each has all jars of ours."""
    known = jars.known_versions()

    assert known == sorted(known, key=lambda item: [int(part) for part in item.split(".")])
    assert {"3.9.1", "4.0.2", KAFKA_VERSION} <= set(known)
    for version in known:
        assert {f"kafka-clients-{version}.jar", f"kafka-server-{version}.jar"} <= set(digests.known())


def test_where_the_cache_is() -> None:
    assert jars.cache_directory({"RINGFENCE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert jars.cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/ringfence")
    assert jars.cache_directory({}) == Path.home() / ".cache" / "ringfence"
