import io

import pytest
from rich.console import Console
from rich.table import Table

from conf import terminal
from ringfence_kafka.escaping import moment, printable

NAME = "orders-of-a-very-long-name-indeed-0"


@pytest.fixture
def table() -> Table:
    table = Table("lane", *(f"column {index}" for index in range(8)), title="rings")
    table.add_row(NAME, *("x" * 40 for _ in range(8)))
    return table


@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_first_column_is_never_cut(table: Table, width: int) -> None:
    """The first column is shown whole, however narrow the window is. A very long name is folded, with the rest of its row."""
    output = io.StringIO()
    console = Console(file=output, width=width, force_terminal=True, color_system=None)
    endless = Table("group", "depth")
    endless.add_row("@" * 117, "17")
    endless.add_row("short", "18")

    terminal.print_table(table, console)
    terminal.print_table(endless, console)

    assert all(text in output.getvalue() for text in (NAME, "17", "18"))
    assert output.getvalue().count("@") == 117


def test_whole_when_piped(
    table: Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    terminal.print_table(table)

    rows = [line for line in capsys.readouterr().out.splitlines() if NAME in line]
    assert [row.count("x" * 40) for row in rows] == [8]


HOSTILE = ("[red]x[/red]", "[/a]", "\x1b[2Jgone", ":warning:", "[link=http://x]y", "a\rb", "\u202egnp")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_nobodys_commands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name is neither markup nor a terminal's command, in any column, title or line, and is shown whole."""
    table = Table("lane", "other", title=name)
    table.add_row(name, name)
    console = terminal.console()
    terminal.print_table(table, console)
    console.print(name, highlight=False)
    out = capsys.readouterr().out

    assert out.count(printable(name)) == 4
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [
        (1_700_000_000_007, "2023-11-14 22:13:20.007 UTC"),
        (-1, "-"),
        (-2, "1969-12-31 23:59:59.998 UTC"),
        (1_700_000_000_000_000, "1700000000000000 ms"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_times(timestamp_ms: int, shown: str) -> None:
    """Any timestamp of a producer is shown, even one outside the calendar."""
    assert moment(timestamp_ms) == shown
