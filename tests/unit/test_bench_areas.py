"""The profile's areas."""

import pytest

from bench.areas import ASYNCIO, BUILD, CORE, LANES, OTHER, PRODUCE, UNPACK, VERDICTS, Frame, area_of

LOOP = Frame("/lib/python3.11/asyncio/base_events.py", "BaseEventLoop._run_once")
LANE = Frame("/src/agents/transactions.py", "Transactions.run")


@pytest.mark.parametrize(
    ("innermost", "area"),
    [
        (Frame("/lib/aiokafka/producer/message_accumulator.py", "BatchBuilder.append"), BUILD),
        (
            Frame("/lib/aiokafka/producer/message_accumulator.py", "MessageAccumulator.drain_by_nodes"),
            PRODUCE,
        ),
        (Frame("/lib/aiokafka/consumer/fetcher.py", "PartitionRecords._unpack_records"), UNPACK),
        (Frame("/src/tables/table.py", "LaneTable.record.<locals>.<listcomp>"), VERDICTS),
        (Frame("/src/tables/table.py", "LaneTable.apply"), LANES),
        (Frame("/src/agents/native_path.py", "NativePath.plan"), CORE),
        (Frame("/src/tables/native_index.py", "NativeIndex.add"), CORE),
        (Frame("<string>", "<lambda>"), LANES),
    ],
)
def test_the_innermost_known_frame_decides(innermost: Frame, area: str) -> None:
    """Code without a file and the standard library work for their caller."""
    assert area_of([innermost, LANE, LOOP]) == area


def test_the_loop_answers_for_what_has_no_other_owner() -> None:
    """Its own frames are at the bottom of every stack."""
    assert area_of([Frame("/lib/python3.11/socket.py", "socket.send"), LOOP]) == ASYNCIO
    assert area_of([Frame("/lib/python3.11/json/encoder.py", "encode")]) == OTHER
