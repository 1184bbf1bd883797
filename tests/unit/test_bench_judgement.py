"""How the benchmark judges runs and compares them."""

import pytest

from bench.contest import COPY, RINGFENCE, Outcome
from bench.job import Run, spread
from bench.measure import environment
from bench.table import ratios
from bench.traffic import Plan


def _run(contender: str, seconds: float = 1.0, outputs: int = 95, distinct: int = 95) -> Run:
    return Run(
        contender, measured=100, seconds=seconds, cpu_s=seconds / 2, broker_cpu_s=1.0, life_cpu_s=9.0,
        peak_rss_bytes=2**20, outputs=outputs, distinct_outputs=distinct,
    )  # fmt: skip


def _outcome(*rounds: tuple[Run, ...]) -> Outcome:
    expected = {RINGFENCE: 95, COPY: 100}
    return Outcome(Plan(100), Plan(10), expected, [{run.contender: run for run in each} for each in rounds])


@pytest.mark.parametrize(
    ("run", "exact"),
    [
        (_run(RINGFENCE), True),
        (_run(RINGFENCE, outputs=96), False),
        (_run(RINGFENCE, outputs=95, distinct=94), False),
        (_run(COPY, outputs=100), True),
        (_run(COPY, outputs=100, distinct=100), False),
    ],
)
def test_exact_means_the_number_of_records_and_of_ids(run: Run, exact: bool) -> None:
    """One lost and one doubled make the right number of records."""
    assert _outcome((run,)).exact(run.contender) == exact


def test_ratios_compare_the_two_of_one_round() -> None:
    """A round in which one of them failed has no ratio."""
    outcome = _outcome((_run(RINGFENCE, 4.0), _run(COPY, 2.0)), (_run(RINGFENCE, 1.0),))

    assert ratios(outcome) == {"messages/s": [0.5], "CPU s / million": [2.0]}


@pytest.mark.parametrize(
    ("values", "expected"), [([3, 1, 2], (1, 2, 3)), ([4, 1, 2, 3], (1, 2.5, 4)), ([7], (7, 7, 7))]
)
def test_spread(values: list[float], expected: tuple[float, float, float]) -> None:
    """Smallest, median, largest."""
    assert spread(values) == expected


def test_settings_of_the_environment_do_not_reach_the_worker() -> None:
    """They would send it to another cluster; what names no setting is kept."""
    given = {
        "RINGFENCE_KAFKA__BOOTSTRAP_SERVERS": "elsewhere:9092",
        "RINGFENCE_CACHE": "kept",
        "PATH": "kept",
    }

    assert environment(given) == {"RINGFENCE_CACHE": "kept", "PATH": "kept"}
