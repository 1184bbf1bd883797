"""All deliberate bugs, in the order in which they are tried."""

from typing import Final

from tests.mutants import (
    bugs_in_attempts,
    bugs_in_bridges,
    bugs_in_conventions,
    bugs_in_groups,
    bugs_in_growth,
    bugs_in_handover,
    bugs_in_hops,
    bugs_in_lanes,
    bugs_in_memory,
    bugs_in_moves,
    bugs_in_nights,
    bugs_in_opening,
    bugs_in_plans,
    bugs_in_reconciled_bridges,
    bugs_in_reconciled_transactions,
    bugs_in_recreated_topics,
    bugs_in_repair,
    bugs_in_state,
    bugs_in_status,
    bugs_in_the_core,
    bugs_in_the_path,
    bugs_in_transactions,
)
from tests.mutants.mutant import Mutant

CATALOG: Final[tuple[Mutant, ...]] = (
    *bugs_in_opening.MUTANTS,
    *bugs_in_lanes.MUTANTS,
    *bugs_in_memory.MUTANTS,
    *bugs_in_moves.MUTANTS,
    *bugs_in_state.MUTANTS,
    *bugs_in_the_path.MUTANTS,
    *bugs_in_the_core.MUTANTS,
    *bugs_in_transactions.MUTANTS,
    *bugs_in_bridges.MUTANTS,
    *bugs_in_hops.MUTANTS,
    *bugs_in_groups.MUTANTS,
    *bugs_in_growth.MUTANTS,
    *bugs_in_handover.MUTANTS,
    *bugs_in_attempts.MUTANTS,
    *bugs_in_recreated_topics.MUTANTS,
    *bugs_in_repair.MUTANTS,
    *bugs_in_reconciled_transactions.MUTANTS,
    *bugs_in_reconciled_bridges.MUTANTS,
    *bugs_in_nights.MUTANTS,
    *bugs_in_conventions.MUTANTS,
    *bugs_in_status.MUTANTS,
    *bugs_in_plans.MUTANTS,
)
