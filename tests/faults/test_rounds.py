"""A few rounds of what the soak does for hours."""

import pytest

from tests.faults import rounds


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("seed", "nemeses"),
    [
        (1, ["kill", "kill-at-re-slotting", "link-blackhole"]),
        pytest.param(2, ["freeze-in-transaction", "storm", "state-lost"], marks=pytest.mark.long),
    ],
)
def test_round(seed: int, nemeses: list[str]) -> None:
    """Nothing is lost, doubled, reordered or forgotten, and every fault really struck."""
    verdict = rounds.run(seed, nemeses)

    assert verdict.faults == [], verdict.line()
    assert set(verdict.strikes) == set(nemeses)
