"""Bugs in what becomes of topics of Ringfence's own that somebody deletes."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_RECOVERY: Final = "agents/changelog_recovery.py"
_TOPIC_TESTS: Final = "tests/integration/test_deleted_topics.py"
_CHANGELOG_TESTS: Final = "tests/integration/test_deleted_changelog.py"

MUTANTS: Final = (
    Mutant(
        "deleted-changelog-unnoticed",
        "The lane goes on beside a changelog that lacks its IDs, and the next worker accepts all of them again.",
        (
            Patch(
                "agents/lane.py", "topic_id not in {None, self._opened.topic_ids[topic]}", "topic_id is None"
            ),
        ),
        f"{_CHANGELOG_TESTS}::test_beneath_a_running_lane",
    ),
    Mutant(
        "known-although-read-again",
        "A message whose output is lost with the group's offset is dropped as its own duplicate.",
        (Patch(_RECOVERY, "return origin.offset < self._next if", "return True if"),),
        f"{_CHANGELOG_TESTS}::test_what_is_read_again_is_forgotten",
    ),
    Mutant(
        "mixed-rings",
        "The IDs of one ring are written over those of another that has begun meanwhile.",
        (
            Patch(
                _RECOVERY,
                "self.meta is None or self.meta.incarnation == self.stored.meta.incarnation",
                "True",
            ),
        ),
        f"{_CHANGELOG_TESTS}::test_another_worker_began_anew",
    ),
    Mutant(
        "meta-record-first",
        "A worker that dies while it writes leaves a changelog that looks whole and is not.",
        (
            Patch(
                _RECOVERY,
                "    entries = choice.kept(table.stored_slots())\n",
                "    await write([(META_KEY, codec.encode_meta(stored._replace(topic_ids=dict(topic_ids))))])\n"
                "    entries = choice.kept(table.stored_slots())\n",
            ),
        ),
        f"{_CHANGELOG_TESTS}::test_died_while_it_wrote",
    ),
    Mutant(
        "recorded-counts-ignored",
        "A deleted accepted topic is created with the partitions of a grown input, and no worker opens its lanes.",
        (
            Patch(
                "app/verbs/topic_rules.py",
                "recorded.get(topic, partitions), replicas",
                "partitions, replicas",
            ),
        ),
        f"{_TOPIC_TESTS}::test_accepted_topic_after_growth",
    ),
    Mutant(
        "deleted-progress-unnoticed",
        "Consumers wait for ever, and every command says that all is well.",
        (Patch("ringfence_client/topic_faults.py", "    if not letters:\n", "    if letters:\n"),),
        f"{_TOPIC_TESTS}::test_progress_topic",
    ),
)
