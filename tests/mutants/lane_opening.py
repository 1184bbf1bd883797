"""Bugs in how a lane is opened: membership, fence, restore, the next offset."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_LANES: Final = "agents/worker/lanes.py"
_OPENING: Final = "agents/lane/open.py"
_STARTS: Final = "agents/lane/opening/start_offsets.py"
_TABLE: Final = "tables/table_restore.py"
_LANE_OPENING_TESTS: Final = "tests/integration/test_lease_opening.py"
_LANE_PATH_TESTS: Final = "tests/integration/test_no_loss_lanes.py"
_LANE_RULES_TESTS: Final = "tests/integration/test_lane_rules.py"
_AFTER_THE_FENCE: Final = f"{_LANE_OPENING_TESTS}::test_next_and_state_are_read_after_the_fence"
_FENCE: Final = """\
await reach("before-fence", self.name)
            await producer.fence(FENCE_LIMIT_S)
            await reach("after-fence", self.name)
            await self._confirm(ownership)"""

MUTANTS: Final = (
    Mutant(
        "no-fence",
        "Two owners of one lane commit side by side, since neither initialises the other's transactional ID.",
        Patch(
            _OPENING,
            "self._transactional_id = wire_names.transactional_id(lane.app_id, address.name, number)",
            'self._transactional_id = f"{wire_names.transactional_id(lane.app_id, address.name, number)}-{id(self)}"',
        ),
        f"{_LANE_OPENING_TESTS}::test_fence_ends_an_idle_owner",
    ),
    Mutant(
        "fence-after-restore",
        "What the former owner commits between the restore and the fence is neither known nor skipped.",
        (
            Patch(
                _OPENING,
                f"{_FENCE}\n            epoch, restored = await self._state.restore(producer, facts)",
                "epoch, restored = await self._state.restore(producer, facts)",
            ),
            Patch(
                _OPENING,
                "await self._begin(cursors, ownership)\n        except BaseException as error:",
                "await self._begin(cursors, ownership)\n"
                f"            {_FENCE}\n"
                "        except BaseException as error:",
            ),
        ),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "bounds-before-fence",
        "The changelog is restored to where it ended before the fence: IDs accepted in between are forgotten.",
        Patch(
            _OPENING,
            f"{_FENCE}\n            epoch, restored = await self._state.restore(producer, facts)",
            f"epoch, restored = await self._state.restore(producer, facts)\n            {_FENCE}",
        ),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "next-before-fence",
        "The offset is not read again after the fence: what the former owner still committed is repeated.",
        (
            Patch(_OPENING, "= await self._state.starts.cursors(facts, self.table.meta)", "= early"),
            Patch(
                _OPENING,
                'await reach("before-fence", self.name)',
                "early = await self._state.starts.cursors(facts, self.table.meta)\n"
                '            await reach("before-fence", self.name)',
            ),
        ),
        _AFTER_THE_FENCE,
    ),
    Mutant(
        "opening-does-not-rewind",
        "What came between two openings was dropped, and its records wait until later ones come.",
        Patch(_OPENING, "            await self._begin(cursors, ownership)\n", ""),
        f"{_LANE_PATH_TESTS}::test_what_came_while_closed_is_fetched_again",
    ),
    Mutant(
        "committed-offset-ignored",
        "Where the changelog was lost the group's offset no longer counts, and all of the input is repeated.",
        Patch(_STARTS, "= [item for item in (committed, recorded) if", "= [item for item in (recorded,) if"),
        f"{_LANE_OPENING_TESTS}::test_lost_changelog_repeats_nothing[another]",
    ),
    Mutant(
        "changelog-offset-ignored",
        "Where the group's offsets expired the changelog's own no longer counts, and the input is repeated.",
        Patch(_STARTS, "= [item for item in (committed, recorded) if", "= [item for item in (committed,) if"),
        "tests/integration/test_ring_sizes.py::test_expired_group_offsets",
    ),
    Mutant(
        "membership-unchecked-before-fence",
        "A woken zombie fences the lane's owner and steals its lane back.",
        Patch(_OPENING, "await self._confirm(ownership)\n        facts =", "facts ="),
        f"{_LANE_OPENING_TESTS}::test_no_member_no_fence",
    ),
    Mutant(
        "membership-unchecked-after-fence",
        "Who lost the lane while it fenced works on in it.",
        Patch(_OPENING, "await self._confirm(ownership)\n            epoch, restored =", "epoch, restored ="),
        f"{_LANE_OPENING_TESTS}::test_membership_lost_during_the_fence",
    ),
    Mutant(
        "membership-believed",
        "A process that slept past its session takes its own idea of the generation for the broker's.",
        Patch("ringfence_kafka/aiokafka_patches/membership.py", "return well and bool(", "return bool("),
        "tests/integration/test_transport.py::test_membership_is_asked_of_the_broker",
    ),
    Mutant(
        "restore-to-last-stable-offset",
        "A restore that ends at the last stable offset misses the records behind an open transaction.",
        Patch("ringfence_kafka/admin/offsets.py", " if which == _STABLE else _READ_UNCOMMITTED", ""),
        f"{_LANE_OPENING_TESTS}::test_restore_reaches_the_high_watermark",
    ),
    Mutant(
        "restore-not-awaited",
        "The lane works while its ring is still being read: resends are accepted meanwhile.",
        (
            Patch(_TABLE, "import logging", "import asyncio\nimport logging"),
            Patch(
                _TABLE,
                "await changelog.reader.read_range(\n"
                "            changelog.topic, changelog.number, start, high_watermark, consume, take",
                "self.reading = asyncio.create_task(\n"
                "            changelog.reader.read_range(\n"
                "                changelog.topic, changelog.number, start, high_watermark, consume, take\n"
                "            )",
            ),
        ),
        f"{_LANE_PATH_TESTS}::test_crash_after_the_commit_repeats_nothing",
    ),
    Mutant(
        "partition-counts-not-compared",
        "After a change of the partition count groups and IDs go on in other lanes, which know nothing of them.",
        Patch("agents/topic_checks/topics.py", "counts.get(topic, before) !=", "counts.get(topic, before) <"),
        f"{_LANE_OPENING_TESTS}::test_grown_input_refuses",
    ),
    Mutant(
        "foreign-changelog-unnoticed",
        "Two applications whose names meet read each other's rings, and fence each other for ever.",
        Patch("tables/restore.py", "if theirs != (app, address):", "if theirs == (app, ''):"),
        "tests/integration/test_foreign_changelog.py::test_names_that_meet",
    ),
    Mutant(
        "recreated-input-unnoticed",
        "The first records of an input that was made again are taken for processed ones and lost.",
        Patch(_STARTS, "meta.is_recreated(topic, facts.topic_ids[topic])", 'meta.topic_ids.get(topic) == ""'),
        f"{_LANE_OPENING_TESTS}::test_recreated_input_begins_anew",
    ),
    Mutant(
        "assigned-without-closing",
        "An assignment that follows another without a revocation meets lanes that still run.",
        Patch(_LANES, "await self._suspend()  # a lost generation", "# a lost generation"),
        f"{_LANE_OPENING_TESTS}::test_assignment_closes_what_ran",
    ),
    Mutant(
        "regained-unconfirmed",
        "A lane goes on after a rebalance although the group does not know its process.",
        Patch(
            _OPENING,
            "topic_ids, _ = await asyncio.gather(self._input_ids(opened), self._confirm(ownership))",
            "topic_ids = await self._input_ids(opened)",
        ),
        f"{_LANE_OPENING_TESTS}::test_not_confirmed",
    ),
    Mutant(
        "regained-in-another-topic",
        "An input that was created again during a rebalance is read from the offset that the old one had reached.",
        Patch(_OPENING, "cursor.require_topic(topic_ids)", "assert cursor"),
        f"{_LANE_OPENING_TESTS}::test_input_created_again_in_between",
    ),
    Mutant(
        "half-a-lane",
        "A lane whose forward partition another worker has is opened in both.",
        Patch("agents/worker/lane_map.py", "_forwards and forward not in places", "_forwards and not places"),
        "tests/integration/test_rings.py::test_half_a_lane_is_not_opened",
    ),
    Mutant(
        "other-rules-open-the-lane",
        "A worker with an older file judges by it, and different messages are dropped as duplicates.",
        Patch(_OPENING, "            await self._checks.require_rules(self.table.meta)\n", ""),
        f"{_LANE_RULES_TESTS}::test_a_worker_with_an_older_rule_opens_no_lane",
    ),
    Mutant(
        "one-worker-shrinks-rings",
        "A ring takes over the limits of the file of whoever opens it, whatever other live workers state.",
        Patch("agents/lane/opening/table_opening.py", "limits = limits if unlike else self", "limits = self"),
        f"{_LANE_RULES_TESTS}::test_a_ring_keeps_size_age_and_persistence",
    ),
    Mutant(
        "lanes-follow-anybody",
        "Messages that a foreign consumer read while no worker ran are never accepted.",
        Patch(_STARTS, "noted is None or self._group_watch is None:", "noted is None or self._group_watch:"),
        "tests/integration/test_foreign_groups.py::test_a_foreign_consumer_while_no_worker_ran",
    ),
)
