"""What an operator means, and what a refused record says."""

import asyncio
import json
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from agents.decision.quarantine import RESENT
from app.commands.repair import common, dlq, output
from app.commands.repair.quarantine_redrive import InputTopic, Publisher, Quarantine, Redrive, find
from app.commands.repair.rate_limit import RateLimit
from app.commands.repair.refused_record import Digest, Place, Refused, place_of, read
from app.commands.repair.result import Result, none_open
from app.commands.repair.scan import Wanted
from app.commands.repair.selection import Selection, place, span
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.producer.transactional import empty_batch
from ringfence_kafka.protocol import offset_ranges, wire_names


class Fetched(NamedTuple):
    """What of aiokafka's record is looked at."""

    headers: tuple[tuple[str, bytes | None], ...] = ()
    value: bytes | None = b"value"
    key: bytes | None = b"group"
    partition: int = 1
    offset: int = 7
    timestamp: int = 1_000_000


def test_what_a_record_says() -> None:
    """Of repeats the last; what is not as it is written by us counts as missing."""
    place_headers = (
        ("__dlq.errors.topic", b"t"),
        ("__dlq.errors.partition", b"2"),
        ("__dlq.errors.offset", b"9"),
    )
    ours = (
        ("_RF_REASON", b"no"),
        ("_RF_REASON", b"why"),
        ("_RF_CONSUMER_GROUP", b"g"),
        ("_RF_ATTEMPTS", b"5"),
    )
    found = read("q", Fetched((*ours, *place_headers, ("_RF_REDRIVEN", b"2"))))
    broken = read(
        "q", Fetched((("_RF_REDRIVEN", b"-1"), ("__dlq.errors.offset", b"9"), ("_RF_REASON", None)))
    )

    assert (found.place, found.reason, found.redriven) == (Place("q", 1, 7), "why", 2)
    assert (found.consumer_group, found.attempts, found.accepted) == ("g", 5, Place("t", 2, 9))
    assert (broken.redriven, broken.accepted, broken.reason) == (0, None, "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b/0/12", Place("a/b", 0, 12)),
        ("t/0/x", None),
        ("t/0", None),
        ("", None),
        ("/0/1", None),
        ("t/-1/2", None),
    ],
)
def test_places(text: str, expected: Place | None) -> None:
    """``<topic>/<partition>/<offset>``, and nothing else."""
    assert place_of(text) == expected


def test_digests() -> None:
    """What stands for a value is told from values, and is of one value alone."""
    value = b"v" * 1_000
    text = json.dumps({"bytes": 1_000, "blake2b_256": blake2b(value, digest_size=32).hexdigest()}).encode()
    digest = read("q", Fetched(value=text)).digest

    assert digest is not None
    assert digest.of(value)
    assert not digest.of(value + b"v")
    assert not digest.of(None)
    for other in (
        b"{}",
        b"[1]",
        b"{no",
        None,
        b'{"bytes": true, "blake2b_256": "ab"}',
        text[:-1] + b', "more": 1}',
    ):
        assert read("q", Fetched(value=other)).digest is None


def _refused(**changes: Any) -> Refused:
    given = {"place": Place("q", 1, 7), "key": b"k", "value": b"v", "headers": (), "timestamp": 1_000_000}
    return Refused(**{**given, **changes})


@pytest.mark.parametrize(
    ("selection", "takes"),
    [
        (Selection(), True),
        (Selection(reason="TAKES"), True),
        (Selection(reason="other"), False),
        (Selection(group=b"g"), True),
        (Selection(group=b"h"), False),
        (Selection(older_s=9), True),
        (Selection(older_s=11), False),
        (Selection(newer_s=11), True),
        (Selection(newer_s=9), False),
        (Selection(at=[(1, 7)]), True),
        (Selection(at=[(7, 1)]), False),
        (Selection(consumer_group="c"), True),
        (Selection(consumer_group="d"), False),
        (Selection(reason="takes", group=b"h"), False),
    ],
)
def test_selection(selection: Selection, takes: bool) -> None:
    """All that is given must hold."""
    refused = _refused(reason="5 bytes, T takes 4", consumer_group="c")

    assert selection.takes(refused, b"g", 1_010_000) is takes


def test_what_is_typed() -> None:
    """Lengths of time and places; what is none is an error that shows one."""
    assert [span(name) for name in ("90s", "10m", "2h", "1.5d")] == [90, 600, 7_200, 129_600]
    assert place("0/17") == (0, 17)
    refusing: list[tuple[Callable[[str], Any], str]] = [
        (span, "10"),
        (span, "h"),
        (span, "-1h"),
        (place, "17"),
        (place, "0/x"),
    ]
    for parse, text in refusing:
        with pytest.raises(ConfigurationError, match="write"):
            parse(text)


def _publisher(*, bridged: bool = False, force: bool = False, **address: Any) -> Publisher:
    configured = AddressSettings(name="orders", **address)
    quarantine = Quarantine("orders", None, "q", "orders", configured, bridged)  # type: ignore[arg-type]
    return Publisher(quarantine, InputTopic(4, 1_000), 3, force=force)


def test_where_it_goes() -> None:
    """Into the partition that it came from, as far as there is one; a bridge's where it is at home."""
    assert _publisher().published(_refused(source="orders/6/1")).partition == 2

    homes = {
        _publisher(bridged=True).published(_refused(key=b"%d" % index, source="s/3/1")).partition
        for index in range(40)
    }

    assert homes == {0, 1, 2, 3}
    same = {
        _publisher(bridged=True, group_header="h")
        .published(_refused(key=b"%d" % index, headers=(("h", b"g"),)))
        .partition
        for index in range(40)
    }
    assert len(same) == 1


def test_what_is_left_behind() -> None:
    """A redriven record has what its producer gave it, and how often it was redriven."""
    headers = (
        ("h", b"1"), ("_RF_TX", b"json/1"), ("_RF_BRIDGE_DUPL_ID", b"b/t/0/1"), ("_RF_BRIDGE_CONFIRMED", b"0"),
        ("_RF_BRIDGE_IDS", b"ignore"), ("_RF_SOURCE", b"orders/0/1"), ("_RF_REASON", b"why"), ("_RF_REDRIVEN", b"1"),
        ("_RF_BRIDGE_APP", b"bremen"), ("h", None),
    )  # fmt: skip
    found = _publisher().published(_refused(headers=headers, redriven=1))

    assert found.headers == [("h", b"1"), ("_RF_TX", b"json/1"), ("h", None), ("_RF_REDRIVEN", b"2")]
    assert (found.key, found.value) == (b"k", b"v")


@pytest.mark.parametrize(
    ("changes", "complaint", "forced"),
    [
        ({}, "", ""),
        ({"redriven": 2}, "", ""),
        ({"redriven": 3}, "redriven 3 times already", ""),
        ({"reason": "the header name 'x' is not UTF-8"}, "header names", ""),
        ({"headers": (("_RF_HOPS", b"berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22 + b",berlin"),)}, "cluster connection", ""),
        ({"headers": (("_RF_HOPS", b"*" + b"A" * 22),)}, "", ""),
        ({"digest": Digest(1, "00")}, "no longer in the input", "no longer in the input"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], complaint: str, forced: str) -> None:
    """What would go round, or would not be what it was, is left, with why; what is not whole even by force."""
    refused = _refused(**changes)
    for found, expected in (
        (_publisher().refusal(refused), complaint),
        (_publisher(force=True).refusal(refused), forced),
    ):
        assert (expected in found) if expected else found == ""


async def test_a_dry_run_says_what_would_be_left() -> None:
    """What the input does not take by its size is left there too; values of what is left, which may be many, are not kept."""
    said: list[str] = []
    run = Redrive(_publisher(), _publisher()._quarantine, None, RateLimit(None), said.append)  # type: ignore[arg-type]
    fits, large, again = _refused(value=b"v" * 500), _refused(value=b"v" * 1_000), _refused(redriven=3)
    await run.try_out(None, [fits, large, again])  # type: ignore[arg-type]

    assert (run.result.done, len(said)) == (1, 1)
    assert ["raise it there" in why for _, why in run.result.left] == [True, False]
    assert all(refused.value is None for refused, _ in run.result.left)


class _Settled:
    """A quarantine partition that keeps what was settled, and what was published for it."""

    builder = staticmethod(empty_batch)

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.published = 0

    async def settle(self, offsets: list[int], batches: list[Any]) -> None:
        self.offsets += offsets
        self.published += sum(batch.builder.record_count() for batch in batches)


@pytest.mark.parametrize("bridged", [True, False])
async def test_what_a_bridge_wrote_twice(bridged: bool) -> None:
    """A record that it had to send again stands there once more, is published once, and settled wherever it stands.

    A lane's count as the same only where a bridge has said so: two that some producer gave such a header are two.
    """
    publisher = _publisher(bridged=bridged, force=True)
    quarantine = publisher._quarantine
    hops = [b"b/T/0/1", b"b/T/0/2", b"b/T/0/1", None, None, b"b/T/0/1"]
    found = [
        _refused(place=Place("q", 0, number), headers=() if hop is None else ((wire_names.HEADER_HOP, hop),))
        for number, hop in enumerate(hops)
    ]
    run = Redrive(publisher, quarantine, None, RateLimit(None), lambda _: None)  # type: ignore[arg-type]
    settled = _Settled()
    await run.act(settled, found[:3])  # type: ignore[arg-type]
    await run.act(settled, found[3:])  # type: ignore[arg-type]
    tried = Redrive(publisher, quarantine, None, RateLimit(None), lambda _: None)  # type: ignore[arg-type]
    await tried.try_out(settled, found)  # type: ignore[arg-type]

    expected = 4 if bridged else 6
    assert (settled.offsets, settled.published) == (list(range(6)), expected)
    assert (run.result.done, tried.result.done) == (expected, expected)


async def test_what_a_lane_refused_twice() -> None:
    """Of one record of a bridge's source, refused again before its hop could be noted, one is published."""
    publisher = _publisher(force=True)
    found = [
        _refused(
            place=Place("q", 0, number), headers=((wire_names.HEADER_HOP, b"b/%b/0/%d" % (b"T" * 22, hop)),)
        )
        for number, hop in enumerate((1, 2, 1))
    ]
    run = Redrive(publisher, publisher._quarantine, None, RateLimit(None), lambda _: None)  # type: ignore[arg-type]
    settled = _Settled()
    await run.act(settled, found)  # type: ignore[arg-type]

    assert (settled.offsets, settled.published, run.result.done) == ([0, 1, 2], 2, 2)


def test_what_came_before_is_left() -> None:
    """A duplicate that did not fit where duplicates go is no message that is missing: without its hop it would be accepted once more."""
    refused = _refused(reason=f"{RESENT}: 99 bytes, orders.duplicates takes max.message.bytes = 90")

    assert "would come twice: drop it" in _publisher().refusal(refused)
    assert _publisher(force=True).refusal(refused) == ""


def test_groups_for_programs() -> None:
    """A group's name as ``--group`` takes it, and its bytes, in every document in the same way."""
    shown = output.document(_refused(), b"a\xff", settled=False)

    assert (shown["group"], shown["group_hex"]) == ("hex:61ff", "61ff")
    nobody = output.document(_refused(), None, settled=False)
    assert (nobody["group"], nobody["group_hex"]) == (None, None)


def test_one_record_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    """Its time is one that can be read; programs have it in milliseconds."""
    refused = _refused(timestamp=1_700_000_000_007)
    output.print_one(refused, b"g", settled=False)

    assert "timestamp       2023-11-14 22:13:20.007 UTC\n" in capsys.readouterr().out
    assert output.document(refused, b"g", settled=False)["timestamp"] == 1_700_000_000_007


def test_names() -> None:
    """An address goes before a bridge of its name; an unknown one is an error that names those that there are."""
    bridges = [{"name": name, "source_topic": "s", "target_address": "orders"} for name in ("orders", "over")]
    settings = validate({"app": {"id": "a"}, "addresses": [{"name": "orders"}], "bridges": bridges[1:]})

    assert find(settings, "orders").topic == "orders.quarantine"
    assert (find(settings, "over").topic, find(settings, "over").target_topic) == (
        "over.quarantine",
        "orders",
    )
    with pytest.raises(
        ConfigurationError, match="unknown address or bridge 'none': the configuration has orders, over"
    ):
        find(settings, "none")
    with pytest.raises(ConfigurationError, match="unknown bridge 'orders'"):
        find(settings, "orders", bridge=True)


async def test_pace() -> None:
    """No more records a second than that, however they are cut; without a rate there is no wait."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    pace = RateLimit(100)
    for _ in range(3):
        await pace.wait(10)

    assert loop.time() - begun >= 0.19  # the last ten need not be waited for
    assert pace.chunk == 20
    assert (RateLimit(None).chunk, RateLimit(1).chunk) == (500, 1)


def test_offsets_in_a_line() -> None:
    """Runs, the first of them."""
    assert offset_ranges.shown([3]) == "1 offset: 3"
    assert offset_ranges.shown([9, 1, 2, 3]) == "4 offsets: 1-3, 9"
    assert offset_ranges.shown(range(0, 40, 2), 2) == "20 offsets: 0, 2, …"


@pytest.mark.parametrize(
    ("done", "left", "code", "said"),
    [
        (0, 0, 1, ["nothing to do  there are no open letters that are meant"]),
        (2, 0, 0, ["2 dropped, 0 left"]),
        (2, 1, 1, ["left  1 (0/0): its holder does not answer", "2 dropped, 1 left"]),
        (0, 2, 1, ["left  2 (0/0, …): its holder does not answer", "0 dropped, 2 left"]),
    ],
)
def test_how_it_ends(
    done: int, left: int, code: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """What is left is told with why, and the exit code says that not all is done."""
    refused = [read("q", Fetched(offset=index, partition=0)) for index in range(left)]
    result = Result(done, [(item, "its holder does not answer") for item in refused])

    assert result.tell(Wanted(Selection(group=b"g"), lambda _: None), "letters", "dropped") == code
    assert capsys.readouterr().out.splitlines() == said


def _letter(offset: int, consumer_group: str) -> Fetched:
    return Fetched((("_RF_CONSUMER_GROUP", consumer_group.encode()),), offset=offset)


def test_a_name_that_is_mistyped() -> None:
    """Where nothing is meant it is said what is open, and whose: a redrive for `biling` looks as if all were done."""
    letters = [_letter(1, "shipping"), _letter(2, "billing"), _letter(3, "billing")]
    wanted = Wanted(Selection(consumer_group="biling"), lambda _: None)
    for letter in letters:
        is_open = letter.offset != 3

        assert not wanted.takes(read("q", letter), letter, 0.0, is_open=is_open)
    assert none_open("dead letters", wanted) == (
        "there are no open dead letters that are meant; 2 others are open (consumer groups: billing, shipping)"
    )

    right = Wanted(Selection(consumer_group="billing"), lambda _: None)

    assert [right.takes(read("q", letter), letter, 0.0, is_open=True) for letter in letters] == [
        False,
        True,
        True,
    ]
    assert right.passed.count == 1


def test_of_other_sources() -> None:
    """What bridges of one name of other applications have refused is not meant, and is counted; what does not say whose it is is meant."""
    wanted = Wanted(Selection(), lambda _: None, app_id="bremen")
    records = [
        Fetched((("_RF_BRIDGE_APP", app),) if app else ())
        for app in (b"bremen", b"kassel", b"", b"kassel", b"zwickau")
    ]

    assert [wanted.takes(read("q", record), record, 0.0, is_open=True) for record in records] == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert ": kassel: 2, zwickau: 1: " in wanted.passed.told_of_foreign
    assert wanted.passed.count == 0
    wanted.passed.clear()
    assert wanted.passed.told_of_foreign == ""
    anybodys = Wanted(Selection(), lambda _: None)
    assert all(anybodys.takes(read("q", record), record, 0.0, is_open=True) for record in records)


def test_nothing_is_open() -> None:
    """By what was asked for: all, some of which none is open, or places."""
    nothing = Wanted(Selection(), lambda _: None)
    some = Wanted(Selection(reason="size"), lambda _: None)
    places = Wanted(Selection(at=[(3, 7), (0, 1)]), lambda _: None)

    assert none_open("letters", nothing) == "there are no open letters"
    assert none_open("letters", some) == "there are no open letters that are meant"
    assert none_open("letters", places) == (
        "0/1, 3/7: no open letters that are meant; `list --all` shows what is settled"
    )


def test_a_hostile_letter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a handler said and what a producer chose neither steers the terminal nor is taken for markup; piped, each is one whole line."""
    monkeypatch.setenv("COLUMNS", "40")
    reason, group = "ValueError: [/b] \x1b[2J\nsecond line", b"\xff[red]"
    headers = (("_RF_REASON", reason.encode()), ("_RF_CONSUMER_GROUP", b"[bold]g[/bold]"), ("x\x1b", None))
    refused = read("q", Fetched(headers, key=group, value=b'{\n\t"a": "\x1b"}'))
    output.print_rows("orders.dlq", [output.Row(refused, group, False, True)])
    listed = capsys.readouterr().out
    output.print_one(refused, group, settled=False)
    shown = capsys.readouterr().out

    (row,) = (line for line in listed.splitlines() if "1/7" in line)
    assert all(name in row for name in ("hex:ff5b7265645d", r"[/b] \x1b[2J\nsecond line"))
    assert "orders.dlq of [bold]g[/bold]: 1 open" in listed
    assert "\x1b" not in listed + shown
    assert r"header          x\x1b: (none)" in shown
    assert shown.endswith('{\n\t"a": "\\x1b"}\n')


def test_columns(capsys: pytest.CaptureFixture[str]) -> None:
    """What is the same in each row stands in the title, or nowhere."""

    def told(*given: tuple[str, int]) -> list[str]:
        found = [
            read("q", Fetched((("_RF_CONSUMER_GROUP", group.encode()), ("_RF_REDRIVEN", b"%d" % redriven))))
            for group, redriven in given
        ]
        output.print_rows("q", [output.Row(refused, b"g", False, False) for refused in found])
        title, _, header, *_ = capsys.readouterr().out.splitlines()
        return [title.strip(), *(part.strip() for part in header.strip("┃").split("┃"))]

    assert told(("", 0)) == ["q: 1 open", "place", "age", "group", "reason"]
    assert told(("a", 0), ("a", 1)) == [
        "q of a: 2 open", "place", "age", "tried", "group", "redriven", "reason",
    ]  # fmt: skip
    assert told(("a", 0), ("", 0))[:4] == ["q: 2 open", "place", "age", "consumer group"]


async def test_waiting_that_cannot_be_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who may read dead letters need not see the consumer groups that they are of: that alone is left open, and said once each."""

    class Holders:
        def __init__(self, *_: object) -> None:
            self.asked: list[str] = []

        async def blocked(self, group: str) -> set[tuple[int, int]]:
            assert group not in self.asked, "a connection that was refused is not asked again"
            if group != "seen":
                self.asked.append(group)
                error = GroupAuthorizationFailedError if group == "hidden" else TopicAuthorizationFailedError
                raise error("orders.accepted")
            return {(0, 7)}

        async def close(self) -> None:
            pass

    def letter(number: int, group: str, offset: int) -> tuple[Refused, bool]:
        headers = [("_RF_CONSUMER_GROUP", group), ("__dlq.errors.topic", "orders.accepted"),
                   ("__dlq.errors.partition", "0"), ("__dlq.errors.offset", str(offset))]  # fmt: skip
        encoded = tuple((name, value.encode()) for name, value in headers)
        return read("orders.dlq", Fetched(encoded, partition=0, offset=number)), False

    monkeypatch.setattr(dlq, "LeaseHolders", Holders)
    settings = validate({"addresses": [{"name": "orders"}]})
    rows = [letter(0, "seen", 7), letter(1, "hidden", 7), letter(2, "hidden", 9), letter(3, "else", 7)]
    waits = await dlq._waiting(settings, settings.addresses[0], rows)
    said = capsys.readouterr().err.splitlines()
    common.show_rows(
        "orders.dlq", rows, Wanted(Selection(), lambda _: None), "dead letters", as_json=True, waits=waits
    )

    assert [load["group_waits"] for load in json.loads(capsys.readouterr().out)] == [True, None, None, None]
    assert [name.rpartition(": this user")[2] for name in said] == [
        " may not see the consumer group hidden: allow Describe on it",
        " may not see the topic orders.accepted: allow Describe on it",
    ]


async def test_a_size_that_was_raised_during_the_run() -> None:
    """What is too large by the topics as they were is compared with the topics as they are, and only that asks for them."""
    asked: list[int] = []
    larger = Publisher(_publisher()._quarantine, InputTopic(4, 10_000), 3, force=False)

    async def renewed() -> Publisher:
        asked.append(1)
        return larger

    found = [
        _refused(place=Place("q", 0, number), value=b"x" * size)
        for number, size in enumerate((1, 5_000, 20_000))
    ]
    publisher = _publisher()
    run = Redrive(publisher, publisher._quarantine, None, RateLimit(None), lambda _: None, renewed)  # type: ignore[arg-type]
    settled = _Settled()
    await run.act(settled, found[:1])  # type: ignore[arg-type]
    assert asked == []
    await run.act(settled, found[1:2])  # type: ignore[arg-type]
    assert (settled.offsets, asked) == ([0, 1], [1])
    await run.act(settled, [found[2], found[2]])  # type: ignore[arg-type]
    assert asked == [1, 1], "a chunk asks once"
    run = Redrive(publisher, publisher._quarantine, None, RateLimit(None), lambda _: None, renewed)  # type: ignore[arg-type]
    await run.try_out(_Settled(), found)  # type: ignore[arg-type]

    assert (run.result.done, len(run.result.left)) == (2, 1)
    assert asked == [1, 1, 1]
