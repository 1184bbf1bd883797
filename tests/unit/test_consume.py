"""How ``ringfence consume`` finds its handler."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.consume import load_handler
from conf.errors import ConfigurationError

MODULE = "handlers_of_this_test"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with nothing remembered of its modules afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith(MODULE)]:
        del sys.modules[name]


def test_module_in_the_current_folder(folder: Path) -> None:
    """It needs to be installed nowhere, and may be a method or anything else that can be called."""
    (folder / f"{MODULE}.py").write_text(
        "def handle(message): return 'handled'\n"
        "class Desk:\n"
        "    @staticmethod\n"
        "    def handle(message): return 'at the desk'\n"
    )

    assert load_handler(f"{MODULE}:handle")(None) == "handled"
    assert load_handler(f"{MODULE}:Desk.handle")(None) == "at the desk"


def test_current_folder_comes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a module of the same name elsewhere, also where the folder is on the path already, further behind."""
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
        (f"{MODULE}:", "is not MODULE:FUNCTION"),
        (":handle", "is not MODULE:FUNCTION"),
        (f"{MODULE}_of_nobody:handle", f"there is no module {MODULE}_of_nobody"),
        (f"{MODULE}.within:handle", f"there is no module {MODULE}.within"),
        (f"{MODULE}:Desk.handle", f"{MODULE} has no Desk.handle"),
        (f"{MODULE}:number", "number is no function"),
        (f"{MODULE}:generate", "generate is a generator function"),
        (f"{MODULE}_faulty:handle", f"{MODULE}_faulty.py, line 2)"),
        (f"{MODULE}_faulty:handle", "does not load: ZeroDivisionError"),
        (f"{MODULE}_quoting:handle", f"{MODULE}_quoting.py, line 2)"),
        (f"{MODULE}_unparsed:handle", "does not load: SyntaxError"),
        (f"{MODULE}_lacking:handle", "needs what_nobody_has, which is missing"),
        ("..handlers:handle", "does not load"),
    ],
)
def test_what_cannot_be_loaded_says_why(folder: Path, text: str, complaint: str) -> None:
    """Whatever a module does when it is imported: an error that names the handler."""
    (folder / f"{MODULE}.py").write_text("number = 7\ndef generate(message): yield message\n")
    (folder / f"{MODULE}_faulty.py").write_text("\n1 / 0\n")
    (folder / f"{MODULE}_quoting.py").write_text("import json\njson.loads('{')\n")
    (folder / f"{MODULE}_unparsed.py").write_text("def\n")
    (folder / f"{MODULE}_lacking.py").write_text("import what_nobody_has\n")

    with pytest.raises(ConfigurationError) as raised:
        load_handler(text)

    assert f"--handler {text!r}" in str(raised.value)
    assert complaint in str(raised.value)
