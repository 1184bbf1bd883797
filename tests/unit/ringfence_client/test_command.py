"""How ``ringfence consume`` finds its handler, and the exceptions that reject a message."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence_client.command import load_exceptions, load_handler
from ringfence_kafka.errors import ConfigurationError

MODULE = "handlers_of_this_test"
BIN = Path(sys.executable).parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the current folder, with nothing remembered of its modules afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [module for module in sys.modules if module.startswith(MODULE)]:
        del sys.modules[name]


def test_module_in_the_current_folder(folder: Path) -> None:
    """A module in the current folder needs no installation, and its handler may be anything that can be called."""
    (folder / f"{MODULE}.py").write_text(
        "def handle(message): return 'handled'\n"
        "class Desk:\n"
        "    @staticmethod\n"
        "    def handle(message): return 'at the desk'\n"
    )

    assert load_handler(f"{MODULE}:handle")(None) == "handled"
    assert load_handler(f"{MODULE}:Desk.handle")(None) == "at the desk"


def test_current_folder_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder takes precedence over other modules of the same name, even if it is further back on the path."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"{MODULE}.py").write_text("def handle(message): return 'elsewhere'\n")
    (folder / f"{MODULE}.py").write_text("def handle(message): return 'here'\n")
    monkeypatch.setattr(sys, "path", [str(elsewhere), str(folder), *sys.path])

    assert load_handler(f"{MODULE}:handle")(None) == "here"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{MODULE}", "is not MODULE:FUNCTION"),
        (f"{MODULE}_of_nobody:handle", f"there is no module {MODULE}_of_nobody"),
        (f"{MODULE}:Desk.handle", f"{MODULE} has no Desk.handle"),
        (f"{MODULE}:number", "number is not a function"),
        (f"{MODULE}:generate", "generate is a generator function"),
        (f"{MODULE}_faulty:handle", "does not load: ZeroDivisionError"),
        (f"{MODULE}_quoting:handle", f"{MODULE}_quoting.py, line 2)"),
        (f"{MODULE}_lacking:handle", "needs what_nobody_has, which is missing"),
        ("..handlers:handle", "does not load"),
    ],
)
def test_what_cannot_be_loaded_says_why(folder: Path, text: str, complaint: str) -> None:
    """A module that cannot be imported, for any reason, causes an error that names the handler."""
    (folder / f"{MODULE}.py").write_text("number = 7\ndef generate(message): yield message\n")
    (folder / f"{MODULE}_faulty.py").write_text("\n1 / 0\n")
    (folder / f"{MODULE}_quoting.py").write_text("import json\njson.loads('{')\n")
    (folder / f"{MODULE}_lacking.py").write_text("import what_nobody_has\n")

    with pytest.raises(ConfigurationError) as raised:
        load_handler(text)

    assert f"--handler {text!r}" in str(raised.value)
    assert complaint in str(raised.value)


def test_a_process_without_the_application(folder: Path) -> None:
    """A handler's package may have any name, because ``ringfence consume`` loads no module of the same name."""
    (folder / "app").mkdir()
    (folder / "app" / "__init__.py").touch()
    (folder / "app" / "orders.py").write_text(
        "import sys\n"
        "ours = {'app.cli', 'agents', 'conf', 'reconcile', 'tables', 'faust', 'pyspark', 'rocksdict'}\n"
        "raise ValueError(f'loaded here: {sorted(ours & sys.modules.keys())}')\n"
    )
    (folder / "ringfence.toml").write_text('[[addresses]]\nname = "orders"\n')
    args = ["orders", "--handler", "app.orders:handle", "--consumer-group", "g", "--config", "ringfence.toml"]
    ran = [
        subprocess.run([*program, *args], capture_output=True, text=True, check=False, timeout=60)
        for program in (
            [BIN / "ringfence", "consume"],
            [BIN / "ringfence-consume"],
            [sys.executable, "-m", "ringfence_client"],
        )
    ]

    assert [done.returncode for done in ran] == [2] * 3
    assert "app.orders does not load: ValueError('loaded here: []')" in ran[0].stderr
    assert len({done.stderr for done in ran}) == 1


def test_a_package_that_python_does_not_take(folder: Path) -> None:
    """A folder without ``__init__.py`` is hidden by any package of its name; the error names both."""
    (folder / "json").mkdir()
    (folder / "json" / "orders.py").write_text("def handle(message): ...\n")

    with pytest.raises(
        ConfigurationError,
        match=r"there is no module json\.orders: .*json has no __init__\.py, so Python takes .*json/__init__",
    ):
        load_handler("json.orders:handle")


def test_exceptions_by_name(folder: Path) -> None:
    """Python's by their names; those of a module or of a class, also one that only the current folder has."""
    code = "class BadOrder(Exception): pass\nclass Desk:\n    class Closed(Exception): pass\n"
    (folder / f"{MODULE}.py").write_text(code)
    (folder / f"{MODULE}_room").mkdir()
    (folder / f"{MODULE}_room" / "__init__.py").touch()
    (folder / f"{MODULE}_room" / "errors.py").write_text("class Full(Exception): pass\n")

    own = [f"{MODULE}.BadOrder", f"{MODULE}.Desk.Closed,ValueError", f"{MODULE}_room.errors.Full"]
    found = load_exceptions(["ValueError, json.JSONDecodeError", *own])

    assert found[:2] == (ValueError, json.JSONDecodeError)
    assert [item.__qualname__ for item in found[2:]] == ["BadOrder", "Desk.Closed", "Full"]
    assert found[2] is sys.modules[MODULE].BadOrder


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "names no exception; write for example ValueError,json.JSONDecodeError"),
        ("BadOrder", "write MODULE.CLASS for one of a module, such as orders.BadOrder"),
        ("json.BadOrder", "json has no BadOrder"),
        (f"{MODULE}_faulty.BadOrder", "does not load: ZeroDivisionError"),
    ],
)
def test_exceptions_that_are_not_there(folder: Path, text: str, complaint: str) -> None:
    """The error names the one of several that is meant."""
    (folder / f"{MODULE}_faulty.py").write_text("1 / 0\n")

    with pytest.raises(ConfigurationError) as raised:
        load_exceptions(["KeyError", text])

    assert f"--reject-on {text!r}" in str(raised.value)
    assert complaint in str(raised.value)


def test_classes_that_cannot_reject(folder: Path) -> None:
    """The program ends before it connects; the exception may be one of the handler's own module."""
    (folder / f"{MODULE}.py").write_text("class BadOrder(Exception): pass\nasync def handle(message): pass\n")
    (folder / "ringfence.toml").write_text('[[addresses]]\nname = "orders"\n')

    def ended(names: str) -> tuple[int, str]:
        ran = subprocess.run(
            [BIN / "ringfence-consume", "orders", "--handler", f"{MODULE}:handle", "--consumer-group", "g", "--config",
             "ringfence.toml", "--bootstrap-server", "127.0.0.1:1", "--web-port", "0", "--reject-on", names],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return ran.returncode, ran.stderr

    code, said = ended(f"{MODULE}.BadOrder,Exception")
    assert (code, "--reject-on: reject_on = Exception: every failed attempt" in said) == (2, True), said
    code, said = ended(f"{MODULE}.BadOrder,{MODULE}.handle")
    assert (code, f"--reject-on '{MODULE}.handle' is <function handle" in said) == (2, True), said
    code, said = ended(f"{MODULE}.BadOrder")
    assert (code, "--reject-on" in said, "127.0.0.1:1" in said) == (2, False, True), said
