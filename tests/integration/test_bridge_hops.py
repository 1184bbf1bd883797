"""Hops of bridges at a real worker: each passes once, whatever happens to the worker's state."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest

from app.commands.rings import clear
from ringfence_kafka.config.load import load
from ringfence_kafka.protocol import wire_names
from ringfence_kafka.protocol.hop import Hop, Source, encode
from tests.support import kafka
from tests.support.kafka import Got, Sent, at_home
from tests.support.worker import Running, configure, one_address, run_verb, worker

APP = "hops"
TOPIC_ID = "AbC_-67890123456789012"
SOURCE = Source("to-paris", TOPIC_ID, 3)
IGNORE = ("_RF_BRIDGE_IDS", b"ignore")
ADDRESSES: list[dict[str, Any]] = [
    {"name": "hops-no-ids", "partitions": 1},
    {"name": "hops-off", "partitions": 1, "id_cache_size": 0},
    {"name": "hops-ids", "partitions": 1, "duplicates": "divert"},
    {"name": "hops-malformed", "partitions": 1},
    {"name": "hops-misplaced", "partitions": 4},
    {"name": "hops-homes", "partitions": 2},
]


def hop(step: int, confirmed: int = 0, source: Source = SOURCE) -> tuple[tuple[str, bytes], ...]:
    return (("_RF_BRIDGE_DUPL_ID", encode(Hop(source, step))), ("_RF_BRIDGE_CONFIRMED", b"%d" % confirmed))


def crossed(step: int, confirmed: int = 0, *more: tuple[str, bytes], user_id: bytes | None = None) -> Sent:
    """Return a record as a bridge writes it."""
    return Sent(user_id, b"g", b"%d" % step, (*hop(step, confirmed), *more))


def values(got: list[Got]) -> list[bytes | None]:
    return [item.value for item in got]


def test_messages_without_ids(running: Running) -> None:
    """A resend without a duplicate ID of its own is dropped, and counted; an accepted record names its passed members."""
    first = [crossed(index, 0, ("_RF_HOPS", b"berlin"), ("h", b"1")) for index in range(10)]
    running.outcome("hops-no-ids", first)
    got = running.outcome("hops-no-ids", [*first[5:], crossed(10, 10), crossed(3), crossed(10, 10)])
    counts = running.worker.health()[1]["lanes"]["hops-no-ids-0"]

    assert values(got) == [b"%d" % index for index in range(11)]
    assert got[0].headers == [("h", b"1"), ("_RF_HOPS", b"berlin"), ("_RF_SOURCE", b"hops-no-ids/0/0")]
    assert {name: counts[name] for name in ("unchecked", "duplicates", "bridge_duplicates")} == {
        "unchecked": 11, "duplicates": 7, "bridge_duplicates": 7,
    }  # fmt: skip
    counter = 'ringfence_bridge_duplicates_total{address="hops-no-ids"} 7.0'
    assert counter in running.worker.page("/metrics")


# -- the worker's state ---------------------------------------------------------------------------------------------


def test_restart_state_lost_and_cleared(bootstrap: str, tmp_path: Path) -> None:
    """A lost disk forgets no hop; ``rings clear`` forgets them from one point on, over a restart too, and keeps IDs; the verbs show it."""
    name = kafka.unique("hops-state")
    lost, cleared = f"{name}-lost", f"{name}-cleared"
    addresses = [{"name": name, "partitions": 1} for name in (lost, cleared)]
    config = configure(tmp_path, bootstrap, name, addresses)
    other = Source("to-paris", "x" * 22, 3)
    elsewhere = Sent(None, b"g", b"other", hop(2, 0, other))
    with worker(config, "w") as process:
        running = Running(bootstrap, process, addresses, name)
        for item in (lost, cleared):
            first = [crossed(step, 4, user_id=b"%d" % step) for step in range(4, 8)]
            running.outcome(item, [*first, elsewhere])
            after = running.outcome(item, [crossed(6), crossed(3), crossed(8, 4)])
            assert values(after) == [b"4", b"5", b"6", b"7", b"other", b"8"]
        said = _verb(config, "clear", f"BRIDGE.{cleared}")
        after_clear = running.outcome(
            cleared, [crossed(8, 8), crossed(8, 8), crossed(7), Sent(b"4", b"g", b"known ID")]
        )
        process.stop()
        shutil.rmtree(tmp_path / "data" / "w" / f"{lost}-0")
        process.start()
        process.wait_ready()
        after_loss = running.outcome(lost, [crossed(8), crossed(2), elsewhere, crossed(9, 9)])
        at_last = running.outcome(cleared, [crossed(8), crossed(7), crossed(9, 9)])
        _require_told(config, lost, other)
    (told,) = [json.loads(item.value or b"") for item in kafka.read_all(bootstrap, f"{name}-journal", 1)]

    assert said == f"cleared  {cleared}-0  2 sources of bridges forgotten\n"
    assert (told["event"], told["address"], told["next"][cleared]) == ("cleared", f"BRIDGE.{cleared}", 8)
    assert values(after_clear)[6:] == [b"8"]  # 7 is below what 8 has confirmed
    assert values(after_loss)[6:] == [b"9"]
    assert values(at_last)[7:] == [b"9"]


def _require_told(config: Path, name: str, other: Source) -> None:
    """Require the verbs' output: 9 is above the floor, which is 9; another source has one hop."""
    bridged = f"BRIDGE.{name}"
    shown = json.loads(_verb(config, "show", bridged, "--json"))["addresses"][bridged]
    found = [
        _verb(config, "find", bridged, encode(Hop(SOURCE, number)).decode(), code=code)
        for number, code in ((8, 0), (9, 0), (10, 1))
    ]

    assert {item["source"]: (item["lane"], item["arrived"], item["floor"], item["above"], item["highest"]) for item in shown} == {
        f"to-paris/{TOPIC_ID}/3": (f"{name}-0", f"{name}/0", 9, 1, 9),
        f"{other.bridge}/{other.topic_id}/3": (f"{name}-0", f"{name}/0", 0, 1, 2),
    }  # fmt: skip
    assert f"ringfence rings show {bridged}" in _verb(config, "show")
    assert "below 9, which its bridge has confirmed" in found[0]
    assert "it came" in found[1]
    assert "not known" in found[2]


def _verb(config: Path, verb: str, *arguments: str, code: int = 0) -> str:
    done = run_verb("rings", verb, *arguments, "--config", str(config), check=False)
    assert done.returncode == code, done.stderr
    return done.stdout


def test_names_and_hops_that_are_none(bootstrap: str, tmp_path: Path) -> None:
    name, config = one_address(tmp_path, bootstrap, "hops-errors")

    def refused(*arguments: str) -> str:
        done = run_verb("rings", *arguments, "--config", str(config), check=False)
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    for verb in (["show"], ["find"], ["clear"]):
        more = ["x"] if verb == ["find"] else []
        assert f"BRIDGE.nobody: unknown address 'nobody': the configuration has {name}" in refused(
            *verb, "BRIDGE.nobody", *more
        )
    for text in (f"to-paris/{TOPIC_ID}/3", "to-paris/short/3/1"):
        assert f"'{text}' is not a hop: write <bridge>/<ID of its source topic>/" in refused(
            "find", f"BRIDGE.{name}", text
        )
    assert "without --of" in refused("find", f"BRIDGE.{name}", f"to-paris/{TOPIC_ID}/3/1", "--of", name)
    assert "nothing has come over a bridge" in _verb(config, "show", f"BRIDGE.{name}")
    assert "rings show BRIDGE" not in _verb(config, "show")
    assert _verb(config, "clear", f"BRIDGE.{name}") == f"cleared  {name}-0  0 sources of bridges forgotten\n"


def test_clear_waits_for_what_is_unread(
    bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cleared while the input or the forward topic has unread hops, unless one insists.

    Unread hops would give the lanes the old confirmations again.
    """
    name, config = one_address(tmp_path, bootstrap, "hops-unread", 2)
    settings, bridged, forward = load(config), f"BRIDGE.{name}", wire_names.forward_topic(name, name)
    monkeypatch.setattr(clear, "WAIT_LIMIT_S", 0.5)

    def unjudged(topic: str) -> None:
        with pytest.raises(
            clear.UnreadError, match=rf"{bridged} is not cleared: .* {topic}/1 up to 0 of 1; "
        ):
            clear.clear(settings, bridged)

    for topic in (name, forward):
        kafka.send(bootstrap, topic, [crossed(9, 9)], 1)
        unjudged(topic)
        kafka.commit(bootstrap, name, topic, 1, 1)
        # Nobody has to judge what was aborted, nor a marker.
        kafka.send_in_transaction(bootstrap, topic, [crossed(9, 9)], commit=False, partition=1)
        if topic == forward:
            assert clear.clear(settings, bridged) == 0
    kafka.send(bootstrap, name, [crossed(10, 9)], 0)
    with pytest.raises(clear.UnreadError):
        clear.clear(settings, bridged)
    assert clear.clear(settings, bridged, despite_lag=True) == 0
    assert capsys.readouterr().out == 2 * "".join(
        f"cleared  {name}-{index}  0 sources of bridges forgotten\n" for index in range(2)
    )
    with pytest.raises(click.UsageError, match=r"--despite-lag is for BRIDGE\.ADDRESS: leave it out"):
        clear.clear(settings, name, despite_lag=True)


def test_home_of_what_has_no_group(running: Running) -> None:
    """A hop without a group, whose ID counts, meets its resend in one lane, in whichever partitions they were put."""
    records = [Sent(None, None, b"%d" % index, hop(index)) for index in range(20)]
    records += [Sent(at_home(0, 2), None, b"%d" % index, (*hop(index), IGNORE)) for index in range(20, 40)]
    running.outcome("hops-homes", records, 0)
    got = running.outcome("hops-homes", records, 1)

    assert Counter(values(got)) == Counter(record.value for record in records)
