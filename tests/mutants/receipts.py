"""Bugs in receipts: a verdict that is another message's, or is taken from what says nothing."""

from typing import Final

from tests.mutants.mutant import Mutant, Patch

_MEMORY: Final = "ringfence_client/receipts/lane_memory.py"
_TESTS: Final = "tests/integration/test_receipts.py"

MUTANTS: Final = (
    Mutant(
        "receipt-of-another-message",
        "Both senders of two messages with one ID get ACCEPTED.",
        Patch(_MEMORY, "return self.place in self.accepted_places", "return bool(self.accepted_places)"),
        "tests/unit/ringfence_client/receipts/test_lane_memory.py::test_its_own_slot_ends_the_wait",
        also=(f"{_TESTS}::test_receipts_fit_the_outputs",),
    ),
    Mutant(
        "own-message-of-any-sender",
        "Two senders of one message both get ACCEPTED.",
        Patch(
            "ringfence_client/receipts/verdict_reader.py",
            "            and dict(record.headers).get(wire_names.HEADER_SENDER) == message.sender\n",
            "",
        ),
        f"{_TESTS}::test_a_named_sender",
    ),
)
