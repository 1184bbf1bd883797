"""State that a run takes over from earlier ones when topics, addresses or rules have changed."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from reconcile.run.frames import journal
from reconcile.run.frames.frames import Frames
from reconcile.run.history.cut import AddressCut, Position, Span, TopicCut
from reconcile.run.history.history import Run
from reconcile.run.history.id_store import address_folder
from reconcile.run.history.layout import ids_folder, results_folder
from reconcile.run.history.renames import called, with_former
from reconcile.run.history.rings import Regrouped, regroups
from reconcile.run.history.rules import kept
from reconcile.spark.columns import small
from reconcile.spark.files import LocalFiles
from reconcile.spark.schemas import ACCEPTED, ADDRESSES, DIVERTED, FORWARDS, HOPS, IDS, INPUTS, OUTPUTS
from ringfence_kafka.config.load import validate

NAMES = ("a", "007")


class State:
    """Two addresses with nothing to read, and a folder."""

    def __init__(self, spark: SparkSession, folder: str, **keys: Any) -> None:
        self.spark = spark
        entries = [{"name": name, **keys} for name in NAMES]
        self.addresses = validate({"addresses": entries}).addresses
        self.files = LocalFiles(folder)
        self.cuts = {name: self._cut(name) for name in NAMES}

    @staticmethod
    def _cut(name: str) -> AddressCut:
        topics = [TopicCut(f"{name}-{n}", "id", [Span(0, 20, 20, 20, 20)]) for n in range(4)]
        return AddressCut(topics[0], topics[1], topics[2], topics[3], None, (0,))

    def frames(self, base: Run | None = None) -> Frames:
        return Frames(self.spark, {}, self.addresses, self.cuts, self.files, base)

    def rows(self, schema: StructType, *rows: dict[str, Any], named: bool = True) -> DataFrame:
        """Rows with only the fields that matter; addresses by name, as they are kept."""
        kinds = {
            item.name: StringType() if named and item.name in ADDRESSES else item.dataType for item in schema
        }
        kept = StructType([StructField(name, kind) for name, kind in kinds.items()])
        return small(self.spark, [tuple(row.get(name) for name in kinds) for row in rows], kept)

    def events(self, told: Sequence[dict[str, Any] | str], begins: dict[str, int] | None = None) -> DataFrame:
        """Return the events in records of the journal."""
        schema = StructType([IDS["offset"], StructField("value", StringType())])
        records = [
            (n, value if isinstance(value, str) else json.dumps(value)) for n, value in enumerate(told)
        ]
        return self.frames().events_in(small(self.spark, records, schema), begins or {})


@pytest.fixture
def state(spark: SparkSession, tmp_path: Any) -> State:
    return State(spark, str(tmp_path))


def _run(number: int, **fields: Any) -> Run:
    positions = {f"{name}-0": Position("id", (0,), (20,)) for name in NAMES}
    return Run(number, number - 1 or None, "2026-11-20", "clean", positions=positions, **fields)


def test_ids_by_address(state: State) -> None:
    """A run takes over IDs by address, under any name, but none of an earlier input of the same name."""
    runs = [_run(3), _run(2), _run(1)]
    runs[2].positions["a-0"] = Position("old", (0,), (20,))
    for run in runs:
        rows = state.rows(IDS, *({"address": name, "id": b"%d" % run.number} for name in (*NAMES, "gone")))
        written = rows.drop("run").write.partitionBy("address")
        written.parquet(state.files.at(ids_folder(run.date, run.number)))

    def found() -> list[tuple[int, int, bytes]]:
        ids = state.frames().ids(runs)
        assert ids.columns == IDS.names
        return sorted((row["run"], row["address"], bytes(row["id"])) for row in ids.collect())

    assert found() == [(1, 1, b"1"), (2, 0, b"2"), (2, 1, b"2"), (3, 0, b"3"), (3, 1, b"3")]
    state.files.delete(address_folder(runs[0].date, runs[0].number, "007"))
    assert found() == [(1, 1, b"1"), (2, 0, b"2"), (2, 1, b"2"), (3, 0, b"3")]


def test_what_waited_for_an_address_that_was_away(state: State) -> None:
    """Inputs of an address that was away come from its last run; they no longer wait if its forward topic was created again."""
    schema = StructType([*INPUTS.fields, *FORWARDS.fields[-2:]])
    for number in (1, 2):
        rows = ({"address": name, "offset": number, "lane": 0, "forward_offset": 9} for name in NAMES)
        state.rows(schema, *rows).write.parquet(state.files.at(results_folder(number), "inputs"))
    base = _run(2, left={"a": 1, "007": 2})
    forward = state.cuts["007"].forward
    assert forward is not None
    forward.recreated = True

    found = state.frames(base).inputs().collect()
    assert sorted((row["address"], row["offset"], row["forward_offset"]) for row in found) == [
        (0, 1, 9), (1, 2, -1),
    ]  # fmt: skip


def test_what_was_left_under_a_former_name(state: State) -> None:
    """A renamed address takes over its inputs, IDs and journal events; nothing waits in the former name's forward topic."""
    schema = StructType([*INPUTS.fields, *FORWARDS.fields[-2:]])
    rows = ({"address": name, "offset": 7, "lane": 0, "forward_offset": 9} for name in ("old", "007"))
    state.rows(schema, *rows).write.parquet(state.files.at(results_folder(1), "inputs"))
    ids = state.rows(IDS, *({"address": name, "id": name.encode()} for name in ("old", "007"))).drop("run")
    ids.write.partitionBy("address").parquet(state.files.at(ids_folder("2026-11-20", 1)))
    state.cuts = with_former(state.cuts, {"a": "old"})
    base = called(_run(1, complete={"old": True, "007": True}, rules={"old": {}}), {"a": "old"})

    frames = state.frames(base)
    inputs = [(row["address"], row["offset"], row["forward_offset"]) for row in frames.inputs().collect()]
    kept = [(row["address"], bytes(row["id"])) for row in frames.ids([base]).collect()]
    (event,) = state.events([{"format": 1, "address": "old", "lane": 0, "next": {"a-0": 3}}]).collect()
    assert (sorted(inputs), sorted(kept)) == ([(0, 7, -1), (1, 7, 9)], [(0, b"old"), (1, b"007")])
    assert (event["address"], event["input_next"]) == (0, 3)


def test_hops_of_an_input_that_was_created_again(state: State) -> None:
    """Lanes and runs keep the hops of a recreated input; records of the old input stand before all of the new one."""
    rows = ({"address": name, "lane": 0, "offset": 9, "hop_offset": 5} for name in NAMES)
    state.rows(HOPS, *rows).write.parquet(state.files.at(results_folder(1), "hops"))
    state.cuts["007"].input.recreated = True

    found = state.frames(_run(1)).hops()
    assert found is not None
    assert sorted((row["address"], row["offset"], row["hop_offset"]) for row in found.collect()) == [
        (0, 9, 5), (1, -1, 5),
    ]  # fmt: skip


def test_an_address_that_is_away(state: State) -> None:
    """Parts from the transactions of a missing address are not phantoms at a present one."""
    rules = {
        "gone": {"input_topic": "gone-in", "transaction_addresses": ["a"]},
        "other": {"input_topic": "other-in"},
    }
    frames = state.frames(_run(1, rules=rules))

    assert (frames.away("a"), frames.away("007")) == (["gone-in"], [])


def test_duplicates_that_were_dropped_until_now(spark: SparkSession, tmp_path: Any) -> None:
    """Records diverted before the first run that reads them are not DOUBLED after a change from drop to divert."""
    state = State(spark, str(tmp_path), duplicates="divert")
    rules = {address.name: kept(address) for address in state.addresses}
    rules["a"]["duplicates"] = "drop"
    frames = state.frames(_run(1, rules=rules))
    rows = [
        {"address": n, "partition": 0, "offset": offset, "fate": fate}
        for n in (0, 1)
        for offset, fate in ((19, DIVERTED), (19, ACCEPTED), (20, DIVERTED))
    ]
    left = frames._not_judged_without(state.rows(OUTPUTS, *rows, named=False))

    assert left.columns == OUTPUTS.names
    assert sorted((row["address"], row["offset"], row["fate"]) for row in left.collect()) == [
        (0, 19, ACCEPTED), (0, 20, DIVERTED), (1, 19, ACCEPTED), (1, 19, DIVERTED), (1, 20, DIVERTED),
    ]  # fmt: skip


def test_the_journal_is_read(state: State) -> None:
    """The run reads the journal from where an address's events begin, and stops at an unknown format."""

    def told_in(*formats: int) -> list[dict[str, Any] | str]:
        event = {"lane": 0, "before": 5, "after": 5}
        told: list[dict[str, Any] | str] = [
            {**event, "format": number, "address": name, "next": {f"{name}-0": 3}}
            for number in formats
            for name in NAMES
        ]
        return [*told, "nonsense"]

    found = state.events(told_in(1, 2), {"a": 1}).collect()
    assert sorted((row["address"], row["number"], row["input_next"]) for row in found) == [
        (0, 2, 3), (1, 1, 3), (1, 3, 3),
    ]  # fmt: skip
    with pytest.raises(Exception, match="of a later version of the workers"):
        state.events(told_in(1, 4)).collect()


def test_what_the_journal_tells_of_a_topic_that_is_gone(state: State) -> None:
    """An event of an earlier topic of the same name stands before all of the present topic. Without a topic ID it counts as it is."""
    following = {"a-0": 3, "a-1": 4}
    ids: list[dict[str, str] | None] = [
        None, {}, {"a-0": "id", "a-1": "id"}, {"a-0": "gone", "a-1": "id"}, {"a-0": "id", "a-1": "gone"},
    ]  # fmt: skip
    told = [{"format": 1, "address": "a", "lane": 0, "next": following, "topic_ids": id_} for id_ in ids]

    found = state.events(told).orderBy("number").collect()
    assert [(row["input_next"], row["forward_next"]) for row in found] == [
        (3, 4), (3, 4), (3, 4), (0, 4), (3, 0),
    ]  # fmt: skip


def test_what_the_journal_tells_of_lanes_of_several_partitions(state: State) -> None:
    """The journal gives offsets by partition, of the forward topic too. A partition that it omits, or that was recreated, counts from 0."""
    state.cuts["a"].input.spans *= 3
    following = {"a-0/0": 3, "a-0/2": 5, "a-1/0": 4}
    told: list[dict[str, Any]] = [
        {"format": 3, "address": "a", "lane": 0, "lanes": 2, "next": following, "topic_ids": {"a-0": id_}}
        for id_ in ("id", "gone")
    ]
    back = {
        "format": 3, "event": "regrouped", "address": "a", "lane": 1, "lanes": 0, "before": 2, "after": 3, "next": {"a-0/1": 7},
    }  # fmt: skip
    events = state.events([*told, back])

    found = events.orderBy("number").collect()
    assert [(row["nexts"], row["forward_next"], row["lanes"]) for row in found] == [
        ([3, 0, 5], 4, 2), ([0, 0, 0], 4, 2), ([0, 7, 0], 0, 0),
    ]  # fmt: skip
    assert journal.regrouped(events) == {0: regroups([Regrouped(2, 1, 2, 3, (0, 7, 0), 0, 0)])}
