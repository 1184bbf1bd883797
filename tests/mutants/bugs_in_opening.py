"""Bugs in how a lane is opened: fence, membership, restore, ``next``."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_OPENING: Final = "agents/opening.py"
_OPENING_TESTS: Final = "tests/integration/test_lane_opening.py"
_STAYS_TESTS: Final = "tests/integration/test_lane_stays.py"
_AFTER_THE_FENCE: Final = f"{_OPENING_TESTS}::test_next_and_state_are_read_after_the_fence"
_FENCE: Final = """\
            await reach("before-fence", self.name)
            await producer.fence(FENCE_LIMIT_S)
            await reach("after-fence", self.name)
            await self._confirm(ownership)
"""
_RESTORED: Final = "            epoch, restored = await self._restored_table(producer, facts)\n"
_BEGUN: Final = "            await self._begin(cursors, ownership)\n"
_CURSORS_MADE: Final = f"{_BEGUN}        except BaseException as error:\n"
_KNOWN: Final = "            known = [each for each in (committed, recorded) if each is not None]\n"

MUTANTS: Final = (
    Mutant(
        "no-fence",
        "Two owners of one lane commit side by side, since neither initialises the other's transactional ID.",
        (
            Patch(
                _OPENING,
                "self._transactional_id = wire.transactional_id(app_id, address.name, partition)",
                'self._transactional_id = f"{wire.transactional_id(app_id, address.name, partition)}-{id(self)}"',
            ),
        ),
        f"{_OPENING_TESTS}::test_fence_ends_an_idle_owner",
    ),
    Mutant(
        "fence-after-restore",
        "What the former owner commits between the restore and the fence is neither known nor skipped.",
        (
            Patch(_OPENING, _FENCE + _RESTORED, _RESTORED),
            Patch(
                _OPENING,
                _CURSORS_MADE,
                _CURSORS_MADE.replace(
                    "        except BaseException", f"{_FENCE}        except BaseException"
                ),
            ),
        ),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "bounds-before-fence",
        "The changelog is restored to where it ended before the fence: IDs accepted in between are forgotten.",
        (Patch(_OPENING, _FENCE + _RESTORED, _RESTORED + _FENCE),),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "next-before-fence",
        "The offset is not read again after the fence: what the former owner still committed is repeated.",
        (
            Patch(
                _OPENING,
                "            cursors = await self._cursors(facts)\n",
                "            cursors = early\n",
            ),
            Patch(_OPENING, _FENCE, "            early = await self._cursors(facts)\n" + _FENCE),
        ),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "opening-does-not-rewind",
        "What came between two openings was dropped, and its records wait until later ones come.",
        (Patch(_OPENING, _BEGUN, ""),),
        "tests/integration/test_lane_path.py::test_what_came_while_closed_is_fetched_again",
    ),
    Mutant(
        "committed-offset-ignored",
        "Where the changelog was lost the group's offset no longer counts, and all of the input is repeated.",
        (Patch(_OPENING, _KNOWN, _KNOWN.replace("(committed, recorded)", "(recorded,)")),),
        f"{_OPENING_TESTS}::test_lost_changelog_repeats_nothing",
    ),
    Mutant(
        "changelog-offset-ignored",
        "Where the group's offsets expired the changelog's own no longer counts, and the input is repeated.",
        (Patch(_OPENING, _KNOWN, _KNOWN.replace("(committed, recorded)", "(committed,)")),),
        "tests/integration/test_sizes.py::test_expired_group_offsets",
    ),
    Mutant(
        "membership-unchecked-before-fence",
        "A woken zombie fences the lane's owner and steals its lane back.",
        (
            Patch(
                _OPENING,
                "        await self._confirm(ownership)\n        facts =",
                "        facts =",
            ),
        ),
        f"{_OPENING_TESTS}::test_no_member_no_fence",
    ),
    Mutant(
        "membership-unchecked-after-fence",
        "Who lost the lane while it fenced works on in it.",
        (Patch(_OPENING, f"            await self._confirm(ownership)\n{_RESTORED}", _RESTORED),),
        f"{_OPENING_TESTS}::test_membership_lost_during_the_fence",
    ),
    Mutant(
        "membership-believed",
        "A process that slept past its session takes its own idea of the generation for the broker's.",
        (
            Patch(
                "ringfence_kafka/insides.py",
                "return well and bool(coordinator.generation == generation)",
                "return bool(coordinator.generation == generation)",
            ),
        ),
        "tests/integration/test_transport.py::test_membership_is_asked_of_the_broker",
    ),
    Mutant(
        "restore-to-last-stable-offset",
        "A restore that ends at the last stable offset misses the records behind an open transaction.",
        (
            Patch(
                "ringfence_kafka/offsets.py",
                "_READ_COMMITTED if which == STABLE else _READ_UNCOMMITTED",
                "_READ_COMMITTED",
            ),
        ),
        f"{_OPENING_TESTS}::test_restore_reaches_the_high_watermark",
    ),
    Mutant(
        "restore-not-awaited",
        "The lane works while its ring is still being read: resends are accepted meanwhile.",
        (
            Patch("tables/table.py", "import logging\n", "import asyncio\nimport logging\n"),
            Patch(
                "tables/table.py",
                "await log_reader.read(kafka, topic, partition, start, high_watermark, consume, take)",
                "self.reading = asyncio.create_task(\n"
                "            log_reader.read(kafka, topic, partition, start, high_watermark, consume, take)\n"
                "        )",
            ),
        ),
        "tests/integration/test_lane_path.py::test_crash_after_the_commit_repeats_nothing",
    ),
    Mutant(
        "restore-skipped",
        "A batch that was committed and never reached RocksDB is forgotten.",
        (
            Patch(
                "tables/table.py",
                "await log_reader.read(kafka, topic, partition, start, high_watermark, consume, take)",
                "await log_reader.read(kafka, topic, partition, high_watermark, high_watermark, consume, take)",
            ),
        ),
        "tests/integration/test_lane_path.py::test_crash_after_the_commit_repeats_nothing",
    ),
    Mutant(
        "partition-counts-not-compared",
        "After a change of the partition count groups and IDs go on in other lanes, which know nothing of them.",
        (
            Patch(
                "agents/topic_faults.py",
                "counts.get(topic, before) != before",
                "counts.get(topic, before) < before",
            ),
        ),
        f"{_OPENING_TESTS}::test_changed_partition_count_refuses",
    ),
    Mutant(
        "foreign-changelog-unnoticed",
        "Two applications whose names meet read each other's rings, and fence each other for ever.",
        (Patch("tables/restore.py", "    if theirs != (app, address):\n", "    if theirs == (app, ''):\n"),),
        "tests/integration/test_foreign_changelog.py::test_names_that_meet",
        ("tests/integration/test_foreign_changelog.py::test_verbs",),
    ),
    Mutant(
        "refused-fences-again",
        "A lane that is not to be opened asks for it with a fence each time, and its true owner never comes to rest.",
        (
            Patch(
                _OPENING,
                "        if self._doubtful:\n",
                "        if not self._doubtful and self._doubtful:\n",
            ),
        ),
        "tests/integration/test_foreign_changelog.py::test_names_that_meet",
    ),
    Mutant(
        "recreated-input-unnoticed",
        "The first records of an input that was made again are taken for processed ones and lost.",
        (
            Patch(
                _OPENING,
                "if meta and meta.topic_ids.get(topic, facts.topic_ids[topic]) != facts.topic_ids[topic]:",
                'if meta and meta.topic_ids.get(topic) == "":',
            ),
        ),
        f"{_OPENING_TESTS}::test_recreated_input_begins_anew",
    ),
    Mutant(
        "started-while-it-runs",
        "A lane is given another assignment in the middle of its work under the last one.",
        (
            Patch(
                "agents/lane.py",
                "        if not self._standing.is_set():\n            raise AssertionError",
                "        if self._task is None and self._kept:\n            raise AssertionError",
            ),
        ),
        f"{_OPENING_TESTS}::test_predecessor_must_be_closed",
        harmless="an assignment has all lanes stand still before it starts any, and nothing else has one run",
    ),
    Mutant(
        "assigned-without-closing",
        "An assignment that follows another without a revocation meets lanes that still run.",
        (
            Patch(
                "agents/lanes.py",
                "            await self._suspend()  # a lost generation",
                "            # a lost generation",
            ),
        ),
        f"{_OPENING_TESTS}::test_assignment_closes_what_ran",
    ),
    Mutant(
        "regained-unconfirmed",
        "A lane goes on after a rebalance although the group does not know its process.",
        (
            Patch(
                _OPENING,
                "        topic_ids, _ = await asyncio.gather(self._input_ids(opened), self._confirm(ownership))\n",
                "        topic_ids = await self._input_ids(opened)\n",
            ),
        ),
        f"{_STAYS_TESTS}::test_not_confirmed",
    ),
    Mutant(
        "regained-unasked",
        "A lane that stays begins with the next batch, whatever is known of its assignment and of what was fetched before.",
        (
            Patch(
                "ringfence_kafka/tenure.py",
                "Step.WORK if self._held_by is self.right else Step.REGAIN",
                "Step.WORK",
            ),
        ),
        f"{_STAYS_TESTS}::test_goes_on_as_it_is",
    ),
    Mutant(
        "regained-in-another-topic",
        "An input that was created again during a rebalance is read from the offset that the old one had reached.",
        (
            Patch(
                _OPENING,
                "            cursor.require_topic(topic_ids)\n",
                "            assert cursor\n",
            ),
        ),
        f"{_STAYS_TESTS}::test_input_created_again_in_between",
    ),
    Mutant(
        "opening-keeps-its-producer",
        "A rebalance ends an opening that reads its batch again, and a producer with its connections is left behind.",
        (
            Patch(
                "agents/lane.py",
                "        async with opened.producer.kept():\n",
                "        async with asyncio.timeout(None):\n",
            ),
        ),
        f"{_STAYS_TESTS}::test_suspended_while_it_reads_its_batch_again",
    ),
    Mutant(
        "failed-and-gone-on-with",
        "What was refused once is gone on with: a fenced lane never opens again.",
        (Patch("ringfence_kafka/tenure.py", "        if not keeps and ", "        if keeps and "),),
        "tests/unit/test_tenure.py::test_competing_processes",
    ),
    Mutant(
        "half-a-lane",
        "A lane whose forward partition another worker has is opened in both.",
        (
            Patch(
                "agents/lanes.py",
                "                if not missing:\n",
                "                if (topic, number) not in missing:\n",
            ),
        ),
        "tests/integration/test_rings.py::test_half_a_lane_is_not_opened",
    ),
    Mutant(
        "clear-without-fence",
        "The running worker overwrites the new floor with its own, and what was cleared is known again.",
        (
            Patch(
                "app/verbs/owned_lane.py",
                "            wire.transactional_id(settings.app.id, address.name, number),\n",
                '            wire.transactional_id(settings.app.id, address.name, number) + "-clear",\n',
            ),
        ),
        "tests/integration/test_rings.py::test_clear_is_honoured_by_a_running_worker",
    ),
)
