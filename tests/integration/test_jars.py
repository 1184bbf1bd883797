import subprocess
import sys
from pathlib import Path

import pytest

from app.embedded import jars
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


@pytest.fixture
def mirror(tmp_path: Path) -> dict[str, str]:
    """An environment with a cache of its own and a mirror in a folder that has two tiny jars and no others."""
    root = tmp_path / "mirror"
    for group, name, version in (
        ("org.apache.kafka", "kafka_2.13", "4.1.0"),
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
    """What the mirror has is fetched whole; the second time not even Java is needed; nothing else is left over."""
    folder = jars.resolve(mirror)

    assert sorted(each.name for each in folder.iterdir()) == [
        "kafka_2.13-4.1.0.jar",
        "log4j-slf4j-impl-2.24.3.jar",
    ]
    assert jars.resolve(mirror | {"PATH": ""}) == folder
    assert sorted(each.name for each in folder.parent.iterdir()) == [".kafka-4.1.0.lock", "kafka-4.1.0"]


def test_two_at_once(mirror: dict[str, str]) -> None:
    """Of two processes that come at once, both succeed and one fetches."""
    both = [
        subprocess.Popen(
            [sys.executable, "-c", "from app.embedded import jars; print(jars.resolve())"],
            cwd=ROOT,
            env=mirror,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [each.communicate(timeout=LIMIT_S) for each in both]

    assert [each.returncode for each in both] == [0, 0], said
    assert [output for output, _ in said] == [f"{mirror['RINGFENCE_CACHE']}/kafka-4.1.0\n"] * 2
    assert sorted("Fetching" in errors for _, errors in said) == [False, True]


def test_not_to_be_had(mirror: dict[str, str], tmp_path: Path) -> None:
    """A jar that the mirror lacks: the error has Ivy's words and the way out, and no half folder stays."""
    next((tmp_path / "mirror").rglob("log4j*.jar")).unlink()

    with pytest.raises(PrerequisiteError, match=r"(?s)RINGFENCE_IVY_SETTINGS.*log4j-slf4j-impl"):
        jars.resolve(mirror)

    assert not (tmp_path / "cache" / "kafka-4.1.0").exists()
    assert not list((tmp_path / "cache").glob(".kafka-4.1.0-*"))


def test_where_the_cache_is() -> None:
    """RINGFENCE_CACHE, else XDG_CACHE_HOME, else the home folder."""
    assert jars.cache_directory({"RINGFENCE_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert jars.cache_directory({"XDG_CACHE_HOME": "/b"}) == Path("/b/ringfence")
    assert jars.cache_directory({}) == Path.home() / ".cache" / "ringfence"
