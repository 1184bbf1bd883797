"""Bugs in redrives, and in changes of partitions and lanes of an address."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_REDRIVES: Final = "ringfence_client/window/redrive_queue.py"

MUTANTS: Final = (
    Mutant(
        "redrive-repeated",
        "A redrive that is run again, because nobody knows how the first one ended, has messages done twice.",
        Patch(_REDRIVES, "        if self.counts.get(offset, 0) >= number:\n            return False\n", ""),
        "tests/unit/ringfence_client/window/test_redriven.py::test_asked_twice",
        also=("tests/integration/test_dlq.py::test_done_once_more",),
    ),
    Mutant(
        "settled-apart-from-its-copy",
        "A redrive that ends between the copy and what says so publishes the same records once more.",
        Patch(
            "app/commands/repair/redrive_log.py",
            'await self._producer.transact([*places, *published], {}, "")',
            'await self._producer.transact(published, {}, "")\n'
            '                await self._producer.transact(places, {}, "")',
        ),
        "tests/integration/test_quarantine.py::test_once_whatever_ends_it",
    ),
    Mutant(
        "heirs-know-nothing",
        "Groups that move are new to their lane: each resend of theirs is accepted once more.",
        Patch(
            "app/commands/topics/grow.py",
            "entries = [Entry(key, value, accepted_at.get(key)) for key, value in restore.occupants.items()]",
            "entries: list[Entry] = []",
        ),
        "tests/integration/test_topics_grow.py::test_grow",
    ),
    Mutant(
        "lanes-open-while-regrouped",
        "A worker opens a lane while its ring is written for other lanes: what it accepts then is forgotten.",
        Patch("app/commands/rings/regrouping.py", "if not is_marked(meta):", "if is_marked(meta):"),
        "tests/unit/app/commands/rings/test_regroup.py::test_all_lanes_are_closed_before_a_ring_is_written",
    ),
    Mutant(
        "any-growth-keeps-lanes",
        "The input of an address that sets lanes may get any count: IDs lie where their groups are no longer.",
        Patch(
            "agents/topic_checks/topics.py",
            "return now > before and lanes > 0 and LaneLayout(now, lanes).keeps_homes(LaneLayout(before, lanes))",
            "return now > before and lanes > 0",
        ),
        "tests/unit/agents/topic_checks/test_lanes.py::test_growth_of_the_input",
    ),
)
