import pytest

from app.commands.repair import output
from app.commands.repair.output import Result, Row, none_open
from app.commands.repair.records import Selection, Wanted, parse
from tests.support.records.refused import Fetched, refused_record


def test_one_record(capsys: pytest.CaptureFixture[str]) -> None:
    """Its time is readable for a person, and in milliseconds for programs, and its group is as ``--group`` takes it."""
    refused = refused_record(timestamp=1_700_000_000_007)
    output.print_one(Row(refused, b"g", False))
    shown, nobody = (output.document(Row(refused, group, False)) for group in (b"a\xff", None))

    assert "timestamp       2023-11-14 22:13:20.007 UTC\n" in capsys.readouterr().out
    assert shown["timestamp"] == 1_700_000_000_007
    assert (shown["group"], shown["group_hex"]) == ("hex:61ff", "61ff")
    assert (nobody["group"], nobody["group_hex"]) == (None, None)


def test_how_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Records that are left are listed with the reason, and the exit code shows that work remains."""
    for done, left, code, said in (
        (0, 0, 1, ["nothing to do  no open letters match"]),
        (2, 0, 0, ["2 dropped, 0 left"]),
        (2, 1, 1, ["left  1 (0/0): its holder is away", "2 dropped, 1 left"]),
        (0, 2, 1, ["left  2 (0/0, …): its holder is away", "0 dropped, 2 left"]),
    ):
        refused = [parse("q", Fetched(offset=index, partition=0)) for index in range(left)]
        result = Result(done, [(item, "its holder is away") for item in refused])

        assert result.report(Wanted(Selection(group=b"g"), lambda _: None), "letters", "dropped") == code
        assert capsys.readouterr().out.splitlines() == said


def test_a_name_that_is_mistyped() -> None:
    """A selection without a match lists the open dead letters and their consumer groups, if there are any."""
    letters = [Fetched((("_RF_CONSUMER_GROUP", name),)) for name in (b"shipping", b"billing", b"billing")]
    wanted, right = (Wanted(Selection(consumer_group=name), lambda _: None) for name in ("biling", "billing"))

    for is_open, letter in zip((True, True, False), letters, strict=True):
        assert not wanted.takes(parse("q", letter), letter, 0.0, is_open=is_open)
    assert none_open("dead letters", wanted) == (
        "no open dead letters match; 2 others are open (consumer groups: billing, shipping)"
    )
    for selection, said in (
        (Selection(), "there are no open letters"),
        (Selection(reason="size"), "no open letters match"),
        (Selection(at=[(3, 7), (0, 1)]), "0/1, 3/7: no open letters match; `list --all` shows settled ones"),
    ):
        assert none_open("letters", Wanted(selection, lambda _: None)) == said
    taken = [right.takes(parse("q", letter), letter, 0.0, is_open=True) for letter in letters]
    assert (taken, right.passed.count) == ([False, True, True], 1)


def test_a_hostile_letter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler's reason and a producer's names neither control the terminal nor count as markup."""
    monkeypatch.setenv("COLUMNS", "40")
    reason, group = "ValueError: [/b] \x1b[2J\nsecond line", b"\xff[red]"
    headers = (("_RF_REASON", reason.encode()), ("_RF_CONSUMER_GROUP", b"[bold]g[/bold]"), ("x\x1b", None))
    refused = parse("q", Fetched(headers, key=group, value=b'{\n\t"a": "\x1b"}'))
    output.print_rows("orders.dlq", [Row(refused, group, False, True)])
    listed = capsys.readouterr().out
    output.print_one(Row(refused, group, False))
    shown = capsys.readouterr().out

    (row,) = (line for line in listed.splitlines() if "1/7" in line)
    assert all(name in row for name in ("hex:ff5b7265645d", r"[/b] \x1b[2J\nsecond line"))
    assert "orders.dlq of [bold]g[/bold]: 1 open" in listed
    assert "\x1b" not in listed + shown
    assert r"header          x\x1b: (none)" in shown
    assert shown.endswith('{\n\t"a": "\\x1b"}\n')


def test_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """A value that is the same in every row stands in the title, or nowhere."""
    for given, titles in (
        ([(b"", b"0")], "q: 1 open, place, age, group, reason"),
        ([(b"a", b"0"), (b"a", b"1")], "q of a: 2 open, place, age, tried, group, redriven, reason"),
        ([(b"a", b"0"), (b"", b"0")], "q: 2 open, place, age, consumer group, tried, group, reason"),
    ):
        found = [
            Fetched((("_RF_CONSUMER_GROUP", group), ("_RF_REDRIVEN", number))) for group, number in given
        ]
        output.print_rows("q", [Row(parse("q", record), b"g", False, False) for record in found])
        title, _, header, *_ = capsys.readouterr().out.splitlines()
        assert ", ".join([title.strip(), *(part.strip() for part in header.strip("┃").split("┃"))]) == titles
