"""Header names of messages without an ID: a bounded sample."""

import pytest

from agents.lane.outcome_counts import NAMES_MAX, MissingIds


def test_names_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message a second is looked at. The most frequent name comes first, and Ringfence's own headers are left out."""
    now, looked = 0.0, []
    monkeypatch.setattr("time.monotonic", lambda: now)
    found = MissingIds()

    def names(*texts: str) -> None:
        def look() -> tuple[str, ...]:
            looked.append(texts)
            return texts

        found.count(look)

    for second, texts in enumerate([("trace", "_RF_HOPS"), ("trace", "_amq_dupl_id", "_amq_dupl_id")]):
        now = float(second + 1)
        names(*texts)
        names("too soon")

    assert found.names == ["trace", "_amq_dupl_id"]
    assert len(looked) == 2
    for second in range(2 * NAMES_MAX):
        now = 10.0 + second
        names(f"name-{second}", "trace")
    assert len(found.names) == NAMES_MAX
    assert found.names[0] == "trace"
