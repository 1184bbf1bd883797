import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

import app.commands.spark_check
from app.commands.spark_check import require_spark
from tests.support.checkout import ROOT
from tests.support.terminal import entered

DOCKERFILE = (ROOT / "Dockerfile").read_text()


def _lock(name: str) -> dict[str, str]:
    """By distribution, its version and digests."""
    entries = re.split(r"^(?=[a-z0-9])", (ROOT / name).read_text(), flags=re.MULTILINE)
    found = {}
    for entry in entries:
        if "==" in entry:
            pinned, *digests = re.findall(r"\S+==[^\s\\]+|--hash=\S+", entry)
            found[pinned.partition("==")[0]] = " ".join([pinned, *sorted(digests)])
    return found


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[=<>\[]", requirement)[0] for requirement in requirements} - {"ringfence-client"}


def test_what_each_image_has() -> None:
    """Workers have all that they are declared to need and no Spark; the other image has both; neither has the tests' tools.

    Images have the same versions and digests as the environment of the tests.
    """
    tested = _lock("requirements.lock")
    for name in ("worker", "reconcile", "build"):
        locked = _lock(f"requirements-{name}.lock")
        assert locked
        assert locked.items() <= tested.items()
    project, client = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in ("", "client")
    )
    needed = _names(project["dependencies"]) | _names(client["dependencies"])
    spark = _names(project["optional-dependencies"]["reconcile"])
    worker, reconcile = (set(_lock(f"requirements-{name}.lock")) for name in ("worker", "reconcile"))

    assert needed <= worker
    assert worker | spark <= reconcile
    assert worker.isdisjoint(spark | {"numpy"})
    assert reconcile.isdisjoint({"pytest", "mypy", "ruff"})


_WITHOUT_THE_REST: Final = """
import importlib, importlib.abc, pkgutil, sys

blocked, packages = sys.argv[1].split(), sys.argv[2:]

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for package in packages:
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        importlib.import_module(found.name)
"""


def test_workers_load_with_what_their_image_has() -> None:
    """Each module of workers, consumers, bridges and their pages loads with only the packages of requirements-worker.lock."""
    there = {*_lock("requirements-worker.lock"), "ringfence", "ringfence-client"}
    blocked = [
        module
        for module, owners in packages_distributions().items()
        if there.isdisjoint(re.sub(r"[._]+", "-", owner.lower()) for owner in owners)
    ]
    of_app = [f"app.{name}" for name in ("worker", "bridge", "commands.status", "commands.repair")]
    ours = ["ringfence_kafka", "ringfence_client", "tables", "agents", *of_app]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_THE_REST, " ".join(blocked), *ours],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert {"pyspark", "matplotlib", "pytest"} <= set(blocked)
    assert done.stderr == ""


def test_targets() -> None:
    """Two images; the smaller one is what a build without a target makes. Neither runs as root, and who is asked answers.

    The build fails if the wheel lacks the core. Without Python's headers it would be pure, and nobody would notice.
    Every path that a stage copies from the tree exists, and is not ignored.
    """
    stages = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
    names = [stage.splitlines()[0].split(" AS ")[1] for stage in stages]
    final = dict(zip(names, stages, strict=True))

    assert names[-1] == "ringfence"
    for name in ("ringfence", "ringfence-reconcile"):
        assert re.findall(r"^USER (.*)$", final[name], re.MULTILINE) == ["10001:10001"]
    assert "/live" in final["ringfence"].partition("HEALTHCHECK")[2]
    assert "openjdk" in final["ringfence-reconcile"]
    assert "openjdk" not in final["ringfence"] + final["common"]
    built = DOCKERFILE[DOCKERFILE.index("pip wheel") :].split("FROM")[0]
    assert "grep --quiet native/_core" in built
    assert "exit 1" in built

    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    lines = re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
    copied = [source for line in lines for source in line.split()[:-1]]
    assert len(copied) == 5
    assert [source for source in copied if source in ignored or not (ROOT / source).exists()] == []
    assert {"tests", "ops", "docs", "data"} <= set(ignored)
    assert (ROOT / "client" / "README.md").exists()
    assert ignored.index("!client/README.md") > ignored.index("*.md")


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint() -> None:
    done = subprocess.run(
        ["hadolint", "Dockerfile"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stdout + done.stderr == ""


@pytest.mark.parametrize("verb", ["reconcile", "audit orders", "demo"])
def test_without_spark(
    verb: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image of the workers says what it lacks and where it is, before a verb has begun."""
    require_spark()
    found = {"pyspark": None}
    monkeypatch.setattr(app.commands.spark_check, "find_spec", lambda name: found.get(name, find_spec(name)))
    config = tmp_path / "ringfence.toml"
    config.write_text('[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[[addresses]]\nname = "orders"\n')

    assert entered(*verb.split(), "--config", str(config)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "there is no pyspark here: pip install 'ringfence[reconcile]'" in said
