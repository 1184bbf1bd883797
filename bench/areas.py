"""Which part of the work a Python stack belongs to. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple


class Frame(NamedTuple):
    """Where a thread is."""

    file: str
    function: str
    """Qualified, as ``Emitter.emit.<locals>.<listcomp>``."""


class Rule(NamedTuple):
    """A frame belongs to the area when its file contains ``file`` and its function is, or is inside, one named."""

    area: str
    file: str
    functions: frozenset[str] | None = None
    """None = all of the file."""


UNPACK: Final = "unpacking records"
FETCH: Final = "fetch protocol"
VERDICTS: Final = "verdicts"
BUILD: Final = "building batches"
CORE: Final = "native core"
STORE: Final = "RocksDB"
PRODUCE: Final = "produce and transaction protocol"
LANES: Final = "rest of Ringfence"
FAUST: Final = "Faust"
ASYNCIO: Final = "asyncio and sockets"
OTHER: Final = "everything else"
COLLECT: Final = "garbage collection"
"""Taken out of the area whose allocation happened to set it off."""
NATIVE: Final = "native threads"
"""No Python runs in them: RocksDB's background work."""

RULES: Final = (
    Rule(
        UNPACK,
        "aiokafka/consumer/fetcher",
        frozenset({"getall", "getone", "_unpack_records", "_consumer_record"}),
    ),
    Rule(UNPACK, "aiokafka/record/"),
    Rule(CORE, "agents/native_path"),
    Rule(CORE, "agents/raw"),
    Rule(CORE, "tables/native_index"),
    Rule(FETCH, "aiokafka/consumer/"),
    Rule(FETCH, "aiokafka/coordinator/"),
    Rule(VERDICTS, "agents/verdict"),
    Rule(VERDICTS, "agents/path"),
    Rule(VERDICTS, "agents/judging"),
    Rule(VERDICTS, "agents/crossing"),
    Rule(VERDICTS, "tables/ring"),
    Rule(VERDICTS, "tables/hops"),
    Rule(VERDICTS, "tables/index"),
    Rule(VERDICTS, "tables/table", frozenset({"check", "record", "admit"})),
    Rule(
        BUILD,
        "aiokafka/producer/message_accumulator",
        frozenset({"append", "_serialize", "_build", "create_builder"}),
    ),
    Rule(BUILD, "agents/emitter"),
    Rule(BUILD, "agents/home"),
    Rule(BUILD, "tables/codec"),
    Rule(STORE, "tables/store"),
    Rule(STORE, "rocksdict"),
    Rule(PRODUCE, "aiokafka/producer/"),
    Rule(PRODUCE, "tables/producer"),
    Rule(LANES, "/agents/"),
    Rule(LANES, "/tables/"),
    Rule(LANES, "/app/"),
    Rule(FAUST, "/faust/"),
    Rule(FAUST, "/mode/"),
    Rule(ASYNCIO, "/asyncio/"),
    Rule(ASYNCIO, "/selectors.py"),
)
"""For one frame the first that fits. aiokafka's connections serve fetching and producing alike: no rule of
theirs, so that their callers, or at last asyncio, answer for them."""


def area_of(stack: Iterable[Frame]) -> str:
    """The area of the innermost frame that any rule knows.

    Args:
        stack: Innermost frame first. Frames that no rule knows, such as the standard library's, work for their
            caller.
    """
    for frame in stack:
        for area, file, functions in RULES:
            if file in frame.file and (
                functions is None or not functions.isdisjoint(frame.function.split("."))
            ):
                return area
    return OTHER
