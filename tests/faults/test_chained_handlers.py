"""Three handlers in a row under faults: each output once, in order, with exact totals."""

from pathlib import Path

import pytest

from tests.harness.chain import Chain

SEED = 4_801
MESSAGES = 15_000
FAULTS = 20


@pytest.mark.long
def test_a_chain_under_faults(tmp_path: Path) -> None:
    """A chain is exact while messages pass and consumers, workers and the broker are killed."""
    chain = Chain(tmp_path, SEED, MESSAGES)
    try:
        chain.start()
        chain.strike(FAULTS)
        chain.drain()
        wrong = chain.findings()
    finally:
        chain.stop()

    assert chain.strikes.total() == FAULTS
    assert wrong == [], f"seed {SEED}: {chain.strikes}"
