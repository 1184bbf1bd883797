"""Bugs in bridges: what is confirmed, sent again and forwarded to whom."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_LOAD: Final = "agents/bridge/batch_builder.py"
_PARTITIONS: Final = "agents/bridge/partitions.py"
_TRANSLATION: Final = "agents/bridge/translation.py"
_BRIDGE_MODEL_TESTS: Final = "tests/property/test_bridge_model.py"
_BRIDGE_WINDOW_TESTS: Final = "tests/unit/agents/bridge/test_window.py"

MUTANTS: Final = (
    Mutant(
        "bridge-commits-before-ack",
        "A process that dies then has committed over messages that never arrived.",
        Patch("agents/bridge/window.py", "self._cycles and not self._cycles[0].pending:", "self._cycles:"),
        f"{_BRIDGE_WINDOW_TESTS}::test_confirmed_by_acknowledgement_alone",
        also=(f"{_BRIDGE_WINDOW_TESTS}::test_confirmed_in_order",),
    ),
    Mutant(
        "bridge-confirms-what-is-sent",
        "What went to quarantine or to another partition, and never arrived, is dropped where it comes at last: a silent loss.",
        Patch(_LOAD, "*ours] if detection", '(ours[0][0], b"%d" % record.offset), *ours[1:]] if detection'),
        f"{_BRIDGE_MODEL_TESTS}::test_taken_after_all",
        also=("tests/property/test_hops_model.py::test_partitioner_changed",),
    ),
    Mutant(
        "bridge-next-batch-before-ack",
        "A batch is lost, the next one arrives: groups lose their order.",
        Patch("agents/bridge/producer_session.py", ", batch.partition)", ", batch.partition, id(batch))"),
        f"{_BRIDGE_MODEL_TESTS}::test_once_and_in_order",
    ),
    Mutant(
        "bridge-steps-over-what-nothing-takes",
        "Without a quarantine topic a message that the target does not take is lost in silence.",
        Patch("agents/bridge/flow.py", "                self.window.cut(cycle, place, error.offset)\n", ""),
        "tests/unit/agents/bridge/test_flow.py::test_what_nothing_takes_stops_its_partition_alone",
    ),
    Mutant(
        "bridge-echo",
        "What came from a member goes back to it.",
        Patch(_TRANSLATION, "if self._member in members or len(members)", "if len(members)"),
        "tests/unit/agents/bridge/test_translation.py::test_no_echo",
    ),
    Mutant(
        "bridge-goes-in-circles",
        "What comes back goes on for ever where IDs do not count.",
        Patch("agents/bridge/translation.py", "self._forwards or turns >= TURNS_MAX:", "self._forwards:"),
        "tests/unit/agents/bridge/test_returning_messages.py::test_ids_that_do_not_count",
    ),
    Mutant(
        "bridge-strict-to-all",
        "Each member gets every message.",
        Patch(
            _LOAD,
            'if owner[f"{where}{record.offset}".encode() if record.key is None else record.key] == member',
            "if member",
        ),
        "tests/unit/agents/bridge/test_batch_builder.py::test_share",
    ),
    Mutant(
        "bridge-forgets-a-lost-end",
        "A source that lost its end and has grown is forwarded, with offsets that the target knows: it drops what is new.",
        Patch("agents/bridge/offsets.py", "if note.lost_end or reached", "if reached"),
        "tests/unit/agents/bridge/test_offsets.py::test_stands_until_somebody_acts",
    ),
    Mutant(
        "bridge-recreated-at-latest",
        "What came into a source that was created again beneath the bridge is never forwarded.",
        Patch(_PARTITIONS, "if present != self._state.first_topic_id:", "if not present:"),
        "tests/integration/test_bridge_sources.py::test_source_recreated_under_it",
    ),
    Mutant(
        "bridges-follow-anybody",
        "A bridge leaves out what a foreign consumer read in its group, with a lag of 0.",
        Patch(_PARTITIONS, "if not why:", "if why is not None:"),
        "tests/integration/test_foreign_groups.py::test_a_foreign_consumer_while_no_bridge_ran",
    ),
)
