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

CATALOG: Final[tuple[Mutant, ...]] = (
    *lane_opening.MUTANTS,
    *lane_transactions.MUTANTS,
    *fixed_lanes.MUTANTS,
    *decisions.MUTANTS,
    *envelopes.MUTANTS,
    *rings.MUTANTS,
    *native_core.MUTANTS,
    *bridges.MUTANTS,
    *bridge_hops.MUTANTS,
    *group_consumption.MUTANTS,
    *partition_opening.MUTANTS,
    *handover.MUTANTS,
    *sends.MUTANTS,
    *receipts.MUTANTS,
    *repair.MUTANTS,
    *reconciliation.MUTANTS,
    *operations.MUTANTS,
)
