"""Bugs in the decision on a message: its ID, its group, its home, its output."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_BATCHES: Final = "agents/output/topic_batches.py"
_EMITTER: Final = "agents/output/build.py"
_VERDICT: Final = "agents/decision/ids_and_groups.py"
_EMITTER_TESTS: Final = "tests/unit/agents/output/test_build.py"
_VERDICT_TESTS: Final = "tests/unit/agents/decision/test_ids_and_groups.py"

MUTANTS: Final = (
    Mutant(
        "home-keeps-the-sign",
        "Half of the keys have another home than the Java client gives them, and all their traffic is forwarded.",
        Patch("agents/decision/partitioner.py", "murmur2(key) & 0x7FFFFFFF", "murmur2(key)"),
        "tests/unit/agents/decision/test_partitioner.py::test_sign_of_the_hash",
    ),
    Mutant(
        "empty-id-is-an-id",
        "A producer with an unset field loses all its messages but one.",
        (
            Patch(_VERDICT, "if (value := headers.get(name))", "if (value := headers.get(name)) is not None"),
            Patch(_VERDICT, "if not found:\n            add(None", "if found is None:\n            add(None"),
        ),
        f"{_VERDICT_TESTS}::test_empty_value_is_no_id",
    ),
    Mutant(
        "parts-run-together",
        "Two messages whose parts divide the same text in another way are one, and the second is dropped.",
        Patch("ringfence_kafka/protocol/duplicate_id.py", '([len(part).to_bytes(4, "big") + part', "([part"),
        "tests/unit/ringfence_kafka/protocol/test_duplicate_id.py::test_parts_are_apart",
        also=(f"{_VERDICT_TESTS}::test_ids_from_parts",),
    ),
    Mutant(
        "missing-id-passes",
        "A message without an ID is accepted unchecked where the address needs an ID.",
        Patch("agents/decision/decide.py", "self._require_ids(items)", "pass"),
        "tests/unit/agents/decision/test_decide.py::test_without_an_id_to_quarantine",
    ),
    Mutant(
        "observed-duplicates-dropped",
        "An address that is tried out in production loses messages that it was to let pass.",
        Patch(_EMITTER, "verdict in _DUPLICATES and (item.resent or not observes)", "verdict in _DUPLICATES"),
        f"{_EMITTER_TESTS}::test_observed",
    ),
    Mutant(
        "accepted-under-its-key",
        "The accepted record's key is not its group: whoever partitions by it tears the group apart.",
        Patch(_EMITTER, ", record.timestamp, group, record.", ", record.timestamp, record.key, record."),
        f"{_EMITTER_TESTS}::test_key_that_is_not_the_group",
    ),
    Mutant(
        "too-large-left-out",
        "A record that its output does not take is in no output, and nobody is told.",
        Patch(_EMITTER, "        if too_large:\n            raise TooLargeError(too_large)\n", ""),
        f"{_EMITTER_TESTS}::test_too_large",
    ),
    Mutant(
        "young-batches-called-aged",
        "A batch that retention would delete at once is taken for a young one.",
        Patch(_BATCHES, "batch.young = timestamp >= self._aged_before", "batch.young = True"),
        "tests/unit/agents/output/test_build.py::test_aged",
    ),
)
