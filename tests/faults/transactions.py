"""Judges transactions: TORN. A part carries ``_RF_TX``, the transaction's ID, and ``_RF_TX_PART``, ``i/N``.

All parts are accepted, or none. Parts may travel to several addresses; a history is of one, so the parts of a
transaction that is judged must all be in it.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from tests.faults.evidence import Evidence, Input, shown
from tests.faults.finding import Anomaly, Finding
from tests.faults.ring import Originals, Standing

HEADER_TRANSACTION: Final = "_RF_TX"
HEADER_PART: Final = "_RF_TX_PART"


class Part(NamedTuple):
    """One part of a transaction."""

    number: int
    of: int
    input: Input


class Transactions:
    """The parts in a history, by transaction."""

    def __init__(self, evidence: Evidence) -> None:
        self._parts: dict[bytes, list[Part]] = defaultdict(list)
        for each in evidence.inputs():
            transaction = each.record.header(HEADER_TRANSACTION)
            if transaction is None:
                continue
            number, _, of = (each.record.header(HEADER_PART) or b"").partition(b"/")
            if number.isdigit() and of.isdigit():
                self._parts[transaction].append(Part(int(number), int(of), each))

    def torn(self) -> list[Finding]:
        """Transactions of which some parts were accepted and others not."""
        findings = []
        for transaction, parts in self._parts.items():
            accepted = _numbers(parts, accepted=True)
            of = max(part.of for part in parts)
            if 0 < len(accepted) < of:
                findings.append(
                    Finding(
                        Anomaly.TORN,
                        tuple(part.input.place for part in parts),
                        f"of transaction {shown(transaction)} the parts {sorted(accepted)} of {of} were accepted",
                    )
                )
        return findings

    def dropped(self, originals: Originals) -> set[Input]:
        """Parts that were rightly dropped, or whose loss is called TORN.

        One known ID drops the whole transaction, and so does a part that never comes. A part of which another copy
        was accepted is a resend of it.
        """
        dropped: set[Input] = set()
        for parts in self._parts.values():
            complete = len(_numbers(parts)) >= max(part.of for part in parts)
            known = any(originals.standing(part.input) is Standing.FOUND for part in parts)
            if _numbers(parts, accepted=True) or known or not complete:
                dropped |= {part.input for part in parts}
        return dropped


def _numbers(parts: list[Part], *, accepted: bool = False) -> set[int]:
    return {part.number for part in parts if part.input.accepted is not None or not accepted}
