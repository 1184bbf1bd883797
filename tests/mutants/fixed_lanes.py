"""Bugs in lanes of several partitions, and in the numbers of what they accept."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_TESTS: Final = "tests/simulation/test_fixed_lanes.py"
_UNIT_TESTS: Final = "tests/unit/agents/decision/test_several_partitions.py"

MUTANTS: Final = (
    Mutant(
        "partitions-judged-apart",
        "A lane judges each partition by itself: the same ID under another group is accepted again.",
        Patch(
            "agents/decision/decide.py",
            "items = list(map(Item, records, sources, ids, groups, ids, repeat(batch.partition)))",
            'apart = [known and known + b"%d" % batch.partition for known in ids]\n'
            "        items = list(map(Item, records, sources, apart, groups, ids, repeat(batch.partition)))",
        ),
        f"{_UNIT_TESTS}::test_an_id_is_known_in_all_partitions",
    ),
    Mutant(
        "regained-with-former-partitions",
        "A lane whose input has grown keeps its former partitions after the rebalance, and nobody reads the new ones.",
        Patch(
            "agents/lane/open.py",
            "        if given is not None and opened.cursors.keys() != set(given):\n"
            '            raise PartitionsChangedError("the group gave the lane other partitions than before")\n',
            "",
        ),
        f"{_TESTS}::test_corpus_of_fixed_lanes",
    ),
    Mutant(
        "numbers-of-the-batch",
        "_RF_SEQ counts within a transaction, so that it is no order of the lane.",
        Patch("agents/output/sequences.py", "numbers = count(checked.first_sequence)", "numbers = count()"),
        f"{_UNIT_TESTS}::test_sequences_count_accepted_ids",
    ),
    Mutant(
        "one-partition-per-commit",
        "A transaction of several partitions commits the offset of one, and what came in the others is accepted again.",
        Patch(
            "agents/lane/transactions.py",
            "{TopicPartition(topic, partition): end for partition, end in ends.items()}",
            "{TopicPartition(topic, due[0].batch.partition): ends[due[0].batch.partition]}",
        ),
        f"{_TESTS}::test_corpus_of_fixed_lanes",
    ),
    Mutant(
        "leaderless-partition-stops-its-lane",
        "A lane of several partitions does not open while one of them has no leader.",
        Patch(
            "agents/lane/opening/start_offsets.py",
            "if not known or recreated or topic != self._lane.address.input_topic:",
            "if error:",
        ),
        "tests/unit/agents/lane/test_start_offsets.py::test_other_partitions_go_on",
    ),
)
