"""All deliberate bugs, in the order in which they are tried."""

from typing import Final

from tests.mutants import (
    bridges,
    decisions,
    envelopes,
    group_consumption,
    lane_opening,
    lane_transactions,
    native_core,
    operations,
    partition_opening,
    reconciliation,
    rings,
    sends,
)
from tests.mutants.mutant import Mutant

_FILES: Final = (
    lane_opening, lane_transactions, decisions, envelopes, rings, native_core, bridges, group_consumption, partition_opening,
    sends, reconciliation, operations,
)  # fmt: skip
CATALOG: Final[tuple[Mutant, ...]] = tuple(mutant for file in _FILES for mutant in file.MUTANTS)
