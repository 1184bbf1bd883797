"""All deliberate bugs, in the order in which they are tried."""

from typing import Final

from tests.mutants import (
    bridge_hops,
    bridges,
    decisions,
    envelopes,
    fixed_lanes,
    group_consumption,
    handover,
    lane_opening,
    lane_transactions,
    native_core,
    operations,
    partition_opening,
    receipts,
    reconciliation,
    repair,
    rings,
    sends,
)
from tests.mutants.mutant import Mutant

_FILES: Final = (
    lane_opening, lane_transactions, fixed_lanes, decisions, envelopes, rings, native_core, bridges, bridge_hops,
    group_consumption, partition_opening, handover, sends, receipts, repair, reconciliation, operations,
)  # fmt: skip
CATALOG: Final[tuple[Mutant, ...]] = tuple(mutant for file in _FILES for mutant in file.MUTANTS)
