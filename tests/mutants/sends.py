"""Bugs in what handlers send and keep: the transaction with the acknowledgement, failed attempts, holders that follow, batches."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_ATTEMPTS: Final = "ringfence_client/dispatch/attempt.py"
_CLOSING: Final = "ringfence_client/consumer/partition_task.py"
_STATES: Final = "ringfence_client/sends/state_store.py"
_TURNS: Final = "ringfence_client/dispatch/turn.py"
_WRITER: Final = "ringfence_client/partition/progress_writer.py"
_TESTS: Final = "tests/simulation/test_sends.py"

MUTANTS: Final = (
    Mutant(
        "send-outside-the-transaction",
        "A crash between a send and its acknowledgement sends a second copy.",
        (
            Patch(_WRITER, "        batches += sent\n", ""),
            Patch(
                _WRITER,
                "bases = await self._producer.transact(batches, offsets, lease.group)",
                "bases = await self._producer.transact(sent, {}, lease.group) if sent else []\n"
                "                bases = [*await self._producer.transact(batches, offsets, lease.group), *bases]\n"
                "                batches += sent",
            ),
        ),
        f"{_TESTS}::test_processes_that_die[end]",
    ),
    Mutant(
        "state-before-the-acknowledgement",
        "A failed attempt counts in the total of its group, and its repetition counts once more.",
        Patch(
            _ATTEMPTS,
            "error = raised\n",
            "error = raised\n"
            "            if effects.changed:\n"
            "                turn.held.sends.acknowledge(record.key, (), effects)\n",
        ),
        f"{_TESTS}::test_attempts_that_fail",
    ),
    Mutant(
        "failed-attempts-send-kept",
        "What a failed attempt sent is written beside what its repetition sends.",
        Patch(
            _ATTEMPTS,
            "error = raised\n",
            "error = raised\n"
            "            if isinstance(raised, ValueError):\n"
            "                turn.held.acknowledge(None, await turn.held.sends.resolve(effects), effects)\n",
        ),
        f"{_TESTS}::test_attempts_that_fail",
    ),
    Mutant(
        "predecessors-state-cached",
        "A partition that comes back goes on with old totals: what another holder counted meanwhile is missing.",
        (
            Patch(
                "ringfence_client/partition/lease_acquisition.py",
                "PartitionSends(self._states, states)",
                'self.__dict__.setdefault("kept", {}).setdefault(lease.partition, PartitionSends(self._states, states))',
            ),
            Patch(
                _STATES,
                "self._reader.cache.drop(self._number)\n"
                "        self._offsets.clear()\n"
                "        self._scanned.clear()",
                "return",
            ),
        ),
        f"{_TESTS}::test_holders_that_freeze[{2**20}]",
    ),
    Mutant(
        "state-partitions-forgotten-at-the-close",
        "The last transaction of a partition that is given away writes states to a partition where nobody looks for them.",
        (
            Patch(_CLOSING, "written = await", "held.sends.states.close()\n        written = await"),
            Patch(_STATES, ".drop(self._number)\n", ".drop(self._number)\n        self._partitions = 1\n"),
        ),
        f"{_TESTS}::test_partitions_that_move",
    ),
    Mutant(
        "id-of-the-attempt",
        "A message that is sent again has another ID, so the address accepts both copies.",
        Patch(
            "ringfence_client/handlers/message.py",
            "Origin(self.source + part,",
            'Origin(f"{self.source}{part}:{self.attempt}",',
        ),
        f"{_TESTS}::test_processes_that_die[produce]",
    ),
    Mutant(
        "fenced-holder-keeps-its-caches",
        "A handler that keeps groups in memory is not told that another process had them.",
        Patch(_CLOSING, "report_lost(self._ours.lost, str(held), held.groups)\n        await held", "held"),
        f"{_TESTS}::test_holders_that_freeze[{2**20}]",
    ),
    Mutant(
        "read-beside-a-write-wins",
        "A state that was read again replaces the one that was committed meanwhile.",
        (
            Patch(_STATES, "if record.key in written or record.offset", "if record.offset"),
            Patch(_STATES, " if group not in written}", "}"),
        ),
        "tests/unit/ringfence_client/sends/test_state_store.py::test_a_write_beside_a_read",
    ),
    Mutant(
        "failed-batch-is-an-attempt",
        "Messages become dead letters because others of their batches failed.",
        Patch(_TURNS, ".window.attempts.take_back(offset, counted=True)", ".window.attempts.rest([offset])"),
        f"{_TESTS}::test_batches_that_fail",
    ),
    Mutant(
        "sends-in-reverse",
        "A reader sees the sends of a group in another order than its messages.",
        Patch("ringfence_client/sends/outbox.py", ".records.append(record)", ".records.insert(0, record)"),
        "tests/integration/test_sends.py::test_sends_of_a_group_are_in_its_order",
    ),
    Mutant(
        "rejected-attempts-send",
        "A message is a dead letter and has sent a record too.",
        Patch(
            _ATTEMPTS,
            "case Reject():\n                self._count_success(turn)\n",
            "case Reject():\n"
            "                self._count_success(turn)\n"
            "                found = turn.held.sends.resolve_at_once(effects)\n"
            "                turn.held.acknowledge(record.key, found or (), effects)\n",
        ),
        "tests/integration/test_sends.py::test_a_dead_letter_and_a_send_exclude_each_other",
    ),
)
