import json

import pytest

from ringfence_kafka.protocol.run_result import BYTES_MAX, RunResult, decode, encode

RESULT = RunResult(
    verdict="anomalies", number=12, began_ms=1_000, ended_ms=2_000, since_ms=0, messages=300, duplicates=20,
    anomalies={"LOST": 2, "CROSS-LANE": 1}, report="/var/lib/ringfence/results/000012/report.html", host="machine",
)  # fmt: skip


@pytest.mark.parametrize(
    "result", [RESULT, RunResult(verdict="failed", began_ms=1, ended_ms=2, error="kein Java: „17“")]
)
def test_it_is_read_as_it_was_written(result: RunResult) -> None:
    assert decode(encode(result)) == result
    assert decode(encode(result) + "\0") == result


def test_long_texts_fit_the_brokers() -> None:
    """The counts stay; an error is cut, and a place that is too long is left out."""
    error = decode(encode(RunResult(verdict="failed", began_ms=1, ended_ms=2, error="ä" * 9_000)))
    text = encode(RunResult(verdict="gap", began_ms=1, ended_ms=2, anomalies={"GAP": 5}, report="ä" * 9_000))

    assert error is not None
    assert 0 < len(error.error) < 9_000
    assert len(text.encode()) <= BYTES_MAX
    assert decode(text) == RunResult(verdict="gap", began_ms=1, ended_ms=2, anomalies={"GAP": 5})


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "7", "{}", json.dumps({"format": 2, "verdict": "clean", "began_ms": 1, "ended_ms": 2}),
     json.dumps({"format": 1, "verdict": "clean"}), json.dumps({"format": 1, "verdict": "clean", "began_ms": "x", "ended_ms": 2})],
)  # fmt: skip
def test_texts_of_others_are_no_result(text: str) -> None:
    assert decode(text) is None
