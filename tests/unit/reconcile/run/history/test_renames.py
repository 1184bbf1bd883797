"""An address that got another name and kept its input: pure."""

from pathlib import Path
from typing import Any

from reconcile.anomalies.names import Anomaly
from reconcile.run.history import id_store, renames
from reconcile.run.history.cut import AddressCut, Span, TopicCut
from reconcile.run.history.history import Run, RunHistory
from reconcile.run.history.layout import ids_folder
from reconcile.run.history.rings import Rings
from reconcile.run.history.rules import doubts, kept
from reconcile.spark.files import LocalFiles
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import AddressSettings


def _addresses(**inputs: str) -> tuple[AddressSettings, ...]:
    entries = [
        {"name": name, "input_topic": topic, "accepted_topic": f"{name}.out"}
        for name, topic in inputs.items()
    ]
    return validate({"addresses": entries}).addresses


def _run(number: int, lanes: dict[str, dict[int, int]], **inputs: str) -> Run:
    """Return a run that accepted so many IDs, and has all that a run has of an address."""
    names = list(inputs)
    return Run(
        number, number - 1 or None, "2026-11-21", "clean", accepted=lanes, known=lanes, complete=dict.fromkeys(names, True),
        summary={"addresses": {name: {"input": 1, "ring": {"capacity": 9}} for name in names}},
        held=lanes, consumed=lanes, earliest=dict.fromkeys(names, 5),
        rules={address.name: kept(address) for address in _addresses(**inputs)},
        whole_since=dict.fromkeys(names, 2), events_from=dict.fromkeys(names, 3),
    )  # fmt: skip


def test_it_is_known_by_its_input() -> None:
    """A renamed address is recognized by its input, if neither its name nor its input was known before."""
    base = _run(3, {}, orders="in", other="there")
    base.left = {"orders": 2}

    def found(**inputs: str) -> dict[str, str]:
        return renames.renamed(_addresses(**inputs), base)

    assert found(sales="in", other="there") == {"sales": "orders"}
    assert found(sales="in") == {"sales": "orders"}
    assert found(orders="in", other="there") == found(sales="new") == {}
    # Two that were each other's.
    assert found(orders="there", other="in") == {}
    # Both have had it, one after the other.
    base.rules["former"], base.left["former"] = {"input_topic": "in"}, 1
    assert found(sales="in") == {"sales": "orders"}
    base.rules = {}
    assert found(sales="in") == renames.renamed(_addresses(sales="in"), None) == {}


def test_what_a_run_said_of_it() -> None:
    """A run under the former name keeps all its results for the new one, except ring contents and forward positions."""
    run = _run(3, {"orders": {0: 4}, "other": {0: 1}}, orders="in", other="there")
    found = renames.called(run, {"sales": "orders"})

    assert (found.accepted, found.known) == ({"other": {0: 1}, "sales": {0: 4}},) * 2
    assert found.held == found.consumed == {"other": {0: 1}}
    assert set(found.rules) == set(found.complete) == set(found.whole_since) == {"other", "sales"}
    assert set(found.earliest) == set(found.events_from) == {"other", "sales"}
    assert (found.left_by("sales"), found.inputs, found.capacity("sales")) == (3, 2, 9)
    assert renames.called(run, {}) == run
    assert list(run.accepted) == ["orders", "other"]


def test_what_its_new_name_leaves_unknown() -> None:
    """A new name leaves missing records unknown, because they may wait in a forward topic without a consumer.

    Later runs know since when the rings are those of this name.
    """
    (address,) = _addresses(sales="in")
    first, second = _run(1, {}, orders="in"), _run(2, {}, sales="in")
    topics = [TopicCut(f"t{n}", "id", [Span(0, 0, 0, 5, 5)]) for n in range(4)]
    cuts = {"sales": AddressCut(topics[0], topics[1], topics[2], topics[3], None, (0,))}

    def doubted(former: dict[str, str]) -> set[Anomaly]:
        base, now = renames.called(first, former), renames.with_former(cuts, former)
        found = doubts([address], now, base, [Rings.from_settings(0, 1)])
        return {name for doubt in found for name in doubt.anomalies}

    assert doubted({}) == set()
    assert {Anomaly.LOST, Anomaly.FORGOTTEN, Anomaly.WRONG_VERDICT} <= doubted({"sales": "orders"})
    forward = renames.with_former(cuts, {"sales": "orders"})["sales"].forward
    assert forward is not None
    assert forward.recreated
    assert renames.since(address, [_run(3, {}, sales="in"), second, first]) == 2
    assert renames.since(address, [second, _run(1, {}, orders="another")]) == 0
    assert renames.since(address, [second]) == renames.since(address, []) == 0


def test_runs_by_its_name(tmp_path: Path) -> None:
    """Earlier runs are read under the new name; on the disk they stay as they are, with their IDs."""
    lanes: dict[str, Any] = {"orders": {0: 4}}
    runs = RunHistory(LocalFiles(str(tmp_path)), {n: _run(n, lanes, orders="in") for n in (1, 2)})
    for run in runs.finished.values():
        (tmp_path / ids_folder(run.date, run.number) / "address=orders").mkdir(parents=True)
    assert id_store.count(runs, runs.settled_base()) == 8
    runs.rename({"sales": "orders"})

    base = runs.settled_base()
    assert [list(run.accepted) for run in runs.chain(base)] == [["sales"], ["sales"]]
    assert id_store.count(runs, base) == 8
    assert list(runs.finished[2].accepted) == ["orders"]
