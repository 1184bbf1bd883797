"""The two distributions: the content of each, and the client in another project."""

import ast
import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import native
from tests.support import kafka
from tests.support.checkout import ROOT, clone
from tests.support.kafka import Sent
from tests.support.worker import wait_for

OURS = {"agents", "app", "conf", "native", "reconcile", "tables"}
"""Top-level names of the application."""
FOREIGN = OURS | {"faust", "mode", "pyspark", "rocksdict", "rich", "jinja2", "matplotlib"}
"""Packages that a consumer does not need."""
LATER = """
import sys
sys.path.insert(0, sys.argv[1])
import native
ids = native.core.Ids(10, 0)
ids.note(0, [b"first", b"second"], bytes(16), 0)
print(".".join(map(str, sys.version_info[:2])), native.spoken, ids.lookup([b"first", b"other", b"second"]))
"""
HANDLER = f"""
import sys
from pathlib import Path
from agents import names
from conf import FILE
import tables

def handle(message):
    ours = {sorted(FOREIGN - OURS)!r}
    with Path(FILE).open("a") as file:
        file.write(f"{{message.group.decode()}} {{message.duplicate_id.decode()}} {{[each for each in ours if each in sys.modules]}} {{names.NAME}} {{tables.NAME}}\\n")
"""


def _built(tree: Path, umask: int = -1, compiler: str = "") -> dict[str, Path]:
    """Wheels by distribution, as ``make wheels`` builds them in a copy of the project."""
    for name in ("Makefile", "MANIFEST.in", "pyproject.toml", "setup.py", "client/pyproject.toml"):
        (tree / name).write_text((ROOT / name).read_text())
    (tree / ".venv").mkdir()
    (tree / ".venv" / ".setup-done").touch()  # the environment of the tests is set up
    subprocess.run(
        ["make", "wheels", f"BIN={Path(sys.executable).parent}"],
        cwd=tree, check=True, timeout=300, umask=umask, capture_output=True,
        env=os.environ | ({"CC": compiler} if compiler else {}),
    )  # fmt: skip
    return {path.name.split("-")[0]: path for path in (tree / "dist").glob("*.whl")}


def _contents(wheels: dict[str, Path]) -> dict[str, bytes]:
    return {name: wheel.read_bytes() for name, wheel in wheels.items()}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return _built(clone(tmp_path_factory.mktemp("wheels") / "tree"))


@pytest.mark.long
def test_reproducible(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> None:
    """A second build of the same commit, elsewhere, later, by somebody with another umask, gives the same bytes."""
    again = _built(clone(tmp_path_factory.mktemp("again") / "tree", umask=0o077), umask=0o077)

    assert set(again) == {"ringfence", "ringfence_client"}
    assert _contents(again) == _contents(wheels)


@pytest.mark.long
def test_into_an_empty_environment(wheels: dict[str, Path], tmp_path: Path) -> None:
    """All that is declared is there with the packages of the workers' image, and Spark is reported as missing."""
    venv.create(tmp_path / "empty", with_pip=False)
    python = tmp_path / "empty" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    quiet = ["--quiet", "--disable-pip-version-check"]
    lock = ["--require-hashes", "--requirement", str(ROOT / "requirements-worker.lock")]
    subprocess.run([*pip, "install", *quiet, *lock], check=True, timeout=300)
    subprocess.run(
        [*pip, "install", *quiet, "--no-index", *map(str, wheels.values())], check=True, timeout=300
    )
    (tmp_path / "r.toml").write_text(
        '[kafka]\nbootstrap_servers = "127.0.0.1:1"\n[[addresses]]\nname = "orders"\n'
    )

    def said(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [python.with_name("ringfence"), *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, done.stdout + done.stderr

    subprocess.run([*pip, "check"], check=True, timeout=300)
    assert said("--version")[0] == 0
    assert said("worker", "--help")[0] == 0
    code, text = said("topics", "check", "--config", "r.toml")
    assert (code, "127.0.0.1:1" in text) == (2, True), text
    code, text = said("reconcile", "--config", "r.toml")
    assert (code, "pip install 'ringfence[reconcile]'" in text) == (2, True), text


def _files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if ".dist-info/" not in name}


def _names(wheel: Path) -> set[str]:
    return {name.split("/")[0] for name in _files(wheel)}


def _metadata(wheel: Path, key: str) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith("/METADATA")]
        lines = opened.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith(f"{key}: ")]


def test_top_level_names(wheels: dict[str, Path]) -> None:
    """The client takes only its own two names, with type information; the application brings the rest, and requires the client."""
    assert _names(wheels["ringfence_client"]) == {"ringfence_client", "ringfence_kafka"}
    assert _names(wheels["ringfence"]) == OURS
    typed = {"ringfence_client/py.typed", "ringfence_kafka/py.typed"}
    assert typed <= _files(wheels["ringfence_client"])
    data = {"conf/ringfence.toml", "conf/ringfence.schema.json", "reconcile/page/page.html"}
    assert data <= _files(wheels["ringfence"])
    [version] = _metadata(wheels["ringfence_client"], "Version")
    assert f"ringfence-client=={version}" in _metadata(wheels["ringfence"], "Requires-Dist")


def test_native_core(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The core is in the application's wheel, for all versions from 3.11 on. Without a compiler the wheel is pure, and whole."""
    pure = _built(clone(tmp_path / "tree"), compiler="false")["ringfence"]
    found, without = (
        {name for name in _files(wheel) if name.startswith("native/")}
        for wheel in (wheels["ringfence"], pure)
    )

    names = {"__init__.py", "__main__.py", "_core.pyi", "records.py", "sources.py"}
    assert without == {f"native/{name}" for name in names}
    assert pure.name.endswith("-py3-none-any.whl")
    assert wheels["ringfence_client"].name.endswith("-py3-none-any.whl")
    if native.core is None:
        pytest.skip(native.spoken)
    [core] = found - without
    assert core == "native/_core.abi3.so"
    assert "-cp311-abi3-" in wheels["ringfence"].name


@pytest.mark.parametrize("minor", [12, 13])
def test_native_core_in_later_versions(minor: int, wheels: dict[str, Path], tmp_path: Path) -> None:
    """The one build runs in later versions of CPython, by the same interface."""
    if native.core is None:
        pytest.skip(native.spoken)
    python = shutil.which(f"python3.{minor}")
    # pyenv's commands are there for all versions, and run the one that this names.
    environment = os.environ | {"PYENV_VERSION": f"3.{minor}"}
    if (
        python is None
        or subprocess.run([python, "-V"], env=environment, capture_output=True, check=False).returncode
    ):
        pytest.skip(f"no Python 3.{minor} on this machine")
    shutil.unpack_archive(wheels["ringfence"], tmp_path, "zip")
    ran = subprocess.run(
        [python, "-I", "-c", LATER, str(tmp_path)],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (ran.returncode, ran.stdout) == (0, f"3.{minor} native core [0, None, 1]\n"), ran.stderr


def test_every_module_is_in_a_wheel(wheels: dict[str, Path]) -> None:
    packed = _files(wheels["ringfence_client"]) | _files(wheels["ringfence"])
    packages = OURS | {"ringfence_client", "ringfence_kafka"}
    tree = wheels["ringfence"].parents[1]
    modules = {str(path.relative_to(tree)) for package in packages for path in (tree / package).rglob("*.py")}

    assert len(modules) > 100
    assert modules - packed == set()


def test_metadata(wheels: dict[str, Path]) -> None:
    """Both wheels hold the license, and name it and the tested versions of Python."""
    text = (ROOT / "LICENSE").read_bytes()
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as opened:
            [license_file] = [
                name for name in opened.namelist() if name.endswith(".dist-info/licenses/LICENSE")
            ]
            assert opened.read(license_file) == text
        assert _metadata(wheel, "License-Expression") == ["Apache-2.0"]
        assert _metadata(wheel, "Requires-Python") == [">=3.11"]
        versions = [name for name in _metadata(wheel, "Classifier") if ":: Python :: 3." in name]
        assert [version.rpartition(".")[2] for version in versions] == ["11", "12", "13"]
    assert b"Apache License" in text


def test_source_distribution(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The source distribution holds the license, and the core's sources with their headers."""
    tree = wheels["ringfence"].parents[1]
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)],
        cwd=tree, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    [packed] = tmp_path.iterdir()
    with tarfile.open(packed) as archive:
        names = {getmember.name.partition("/")[2] for getmember in archive.getmembers() if getmember.isfile()}
    sources = {str(path.relative_to(tree)) for path in (tree / "native" / "src").iterdir()}

    assert sources | {"LICENSE", "native/sources.py", "pyproject.toml", "setup.py"} <= names


def test_what_the_client_imports(wheels: dict[str, Path]) -> None:
    """The client imports only the standard library, itself, and the packages of its metadata."""
    needed = {"pydantic_core"} | {
        wheel.split("==")[0].split(">")[0].split("<")[0].replace("-", "_")
        for wheel in _metadata(wheels["ringfence_client"], "Requires-Dist")
    }
    imported = set()
    with zipfile.ZipFile(wheels["ringfence_client"]) as opened:
        for name in opened.namelist():
            if name.endswith(".py"):
                for node in ast.walk(ast.parse(opened.read(name))):
                    if isinstance(node, ast.Import):
                        imported |= {name.name.split(".")[0] for name in node.names}
                    elif isinstance(node, ast.ImportFrom):
                        imported.add((node.module or "").split(".")[0])

    assert imported - set(sys.stdlib_module_names) - {"ringfence_client", "ringfence_kafka"} <= needed


def _environment(folder: Path, wheel: Path) -> Path:
    """Make an environment with the client and its requirements, without the application; return its programs' folder.

    Foreign packages come from the environment of the tests. Its own .pth files, which would bring the application, do not count there.
    """
    venv.create(folder, with_pip=False)
    [site] = folder.glob("lib/python*/site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", str(wheel)],
        check=True, timeout=300,
    )  # fmt: skip
    theirs = next(Path(name) for name in sys.path if name.endswith("site-packages"))
    (site / "others.pth").write_text(f"{theirs}\n")
    return folder / "bin"


@contextlib.contextmanager
def _consuming(
    programs: Path, project: Path, log: Path, bootstrap: str, name: str, handler: str, value: bytes
) -> Iterator[None]:
    """Run ``ringfence-consume`` in a project, with one message; it ends in order."""
    (project / "ringfence.toml").write_text(
        f'[kafka]\nbootstrap_servers = "{bootstrap}"\n[app]\nid = "{name}"\n[[addresses]]\nname = "{name}"\n'
    )
    kafka.create_topics(bootstrap, {f"{name}.accepted": (1, {})})
    kafka.send(bootstrap, f"{name}.accepted", [Sent(b"1", b"group", value)])
    with log.open("w") as file:
        process = subprocess.Popen(
            [programs / "ringfence-consume", name, "--handler", handler, "--consumer-group", "g", "--config", "ringfence.toml",
             "--web-port", "0"],
            cwd=project, stdout=file, stderr=file,
        )  # fmt: skip
        try:
            yield
        finally:
            process.terminate()
            ended = process.wait(30)
    assert ended == 0, log.read_text()


def test_in_a_project_with_packages_of_the_same_names(
    bootstrap: str, tmp_path: Path, wheels: dict[str, Path]
) -> None:
    """The client finds a handler that uses the project's own app, agents, conf and tables, without any of the application."""
    name = kafka.unique("wheels")
    programs = _environment(tmp_path / "environment", wheels["ringfence_client"])
    project = tmp_path / "project"
    for package, text in {
        "app": "", "agents": "", "conf": f"FILE = {str(tmp_path / 'handled')!r}", "tables": "NAME = 'their table'",
    }.items():  # fmt: skip
        (project / package).mkdir(parents=True)
        (project / package / "__init__.py").write_text(text)
    (project / "app" / "orders.py").write_text(HANDLER)
    (project / "agents" / "names.py").write_text("NAME = 'their agent'")
    handled = tmp_path / "handled"
    with _consuming(programs, project, tmp_path / "log", bootstrap, name, "app.orders:handle", b"x"):
        wait_for(
            lambda: handled.exists() and handled.read_text().endswith("\n"), (tmp_path / "log").read_text
        )

    assert handled.read_text() == "group 1 [] their agent their table\n"
    without = subprocess.run(
        [programs / "python", "-c", "import reconcile"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=project,
    )
    assert "No module named 'reconcile'" in without.stderr
