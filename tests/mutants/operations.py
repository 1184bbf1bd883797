"""Bugs in bounds of memory, in access, in what operators see and do, and in receipts."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_FINDINGS: Final = "app/commands/status/findings.py"
_GUARD: Final = "ringfence_kafka/http/auth.py"
_WAITING: Final = "tests/unit/app/commands/status/test_waiting_for_a_person.py"
_MEMORY: Final = "ringfence_client/receipts/lane_memory.py"
_RECEIPTS_TESTS: Final = "tests/integration/test_receipts.py"
_REDRIVES: Final = "ringfence_client/window/redrive_queue.py"

MUTANTS: Final = (
    Mutant(
        "health-tells-everything",
        "Whoever reaches the port learns lanes, topics and faults without the token.",
        Patch(_GUARD, "request.path == _ALIVE", "request.path in {_ALIVE, _READY}"),
        "tests/unit/ringfence_kafka/http/test_auth.py::test_without_the_token",
    ),
    Mutant(
        "any-page-drops-messages",
        "A web page that an operator looks at drops messages of a consumer that their browser reaches.",
        Patch(_GUARD, "if changes and", "if False and"),
        "tests/unit/ringfence_kafka/http/test_login.py::test_without_a_token_changes_are_checked_all_the_same",
    ),
    Mutant(
        "status-dead-letters-are-a-note",
        "Dead letters wait for a person, and a job that looks at the exit code of status never notices.",
        Patch(
            "app/commands/status/consumer_findings.py",
            '"; ".join(what), do, command, stands=True)',
            '"; ".join(what), do, command, stands=False)',
        ),
        f"{_WAITING}::test_open_dead_letters",
    ),
    Mutant(
        "status-run-not-clean-unseen",
        "A run named lost messages, and status says that all is ok.",
        Patch(_FINDINGS, "if not run.ok:", "if not run.ok and run.acknowledged:"),
        f"{_WAITING}::test_last_run",
    ),
    Mutant(
        "status-messages-without-an-id-unseen",
        "Producers set no ID, their resends are accepted again, and nothing says so.",
        Patch("app/commands/status/address_findings.py", "if not number:", "if number:"),
        f"{_WAITING}::test_messages_without_an_id",
    ),
    Mutant(
        "page-shows-values",
        "Contents of messages are on the page although nobody allowed that.",
        Patch("app/commands/status/page/letter.html", "{% if not values %}", "{% if false %}"),
        "tests/unit/app/worker/test_page_details.py::test_values_are_hidden",
    ),
    Mutant(
        "constant-id-unseen",
        "A producer sends one ID with all its messages, and nobody is told that they are lost.",
        Patch("agents/decision/frequent_ids.py", "[identifier] += weight", "[identifier] = weight"),
        "tests/unit/agents/decision/test_frequent_ids.py::test_among_many",
        also=("tests/unit/agents/decision/test_frequent_ids.py::test_more_than_a_tenth",),
    ),
    Mutant(
        "receipt-of-another-message",
        "Both senders of two messages with one ID get ACCEPTED.",
        Patch(_MEMORY, "return self.place in self.accepted_places", "return bool(self.accepted_places)"),
        "tests/unit/ringfence_client/receipts/test_lane_memory.py::test_its_own_slot_ends_the_wait",
        also=(f"{_RECEIPTS_TESTS}::test_receipts_fit_the_outputs",),
    ),
    Mutant(
        "own-message-of-any-sender",
        "Two senders of one message both get ACCEPTED.",
        Patch(
            "ringfence_client/receipts/verdict_reader.py",
            "            and dict(record.headers).get(wire_names.HEADER_SENDER) == message.sender\n",
            "",
        ),
        f"{_RECEIPTS_TESTS}::test_a_named_sender",
    ),
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
        Patch("app/commands/rings/regroup_steps.py", "if not is_marked(meta):", "if is_marked(meta):"),
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
