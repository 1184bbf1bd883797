from typing import Any

from ringfence_kafka.page.history import SPANS, History, Subject, Values, merged

ORDERS: Subject = ("address", "orders")


class _Process:
    def __init__(self) -> None:
        self.at = 1_200_000.0
        self.figures: dict[Subject, dict[str, float | None]] = {ORDERS: {}}
        self.history = History(lambda: self.figures, lambda: self.at)

    def show(self, seconds: float = 10, **figures: float | None) -> None:
        self.at += seconds
        self.figures[ORDERS] = figures
        self.history.sample()

    def values(self, span: str, name: str) -> Values:
        return list(dict(self.history.document(span)["rows"][0][1])[name])


def test_counters_become_rates() -> None:
    """A counter is shown as its growth a second; a restart of the counter is a gap, not a negative rate."""
    process = _Process()
    for count in (500, 600, 600, 30, 80):
        process.show(accepted=count)

    assert process.values("hour", "accepted")[-4:] == [10.0, 0.0, None, 5.0]


def test_a_slot_holds_the_worst_level_and_the_mean_rate() -> None:
    """Of the samples in a slot the largest lag, the least coverage and the mean rate stay."""
    process = _Process()
    process.at = 1_199_990.0
    for lag, covered, count in ((0, 900, 0), (70, 400, 100), (20, 800, 400)):
        process.show(lag=lag, covered=covered, accepted=count)

    assert [process.values("day", name)[-1] for name in ("lag", "covered", "accepted")] == [70, 400, 20]
    assert process.values("hour", "lag")[-3:] == [0, 70, 20]


def test_gaps_stay_gaps() -> None:
    """A time without samples is not known, also after the slots went round, and after the clock was set back."""
    process = _Process()
    process.show(lag=1)
    process.show(60, lag=2)
    assert process.values("hour", "lag")[-7:] == [1, None, None, None, None, None, 2]
    process.show(86_400 * 3, lag=3)
    for span in SPANS:
        assert process.values(span, "lag")[-2:] == [None, 3]
        assert set(process.values(span, "lag")[:-1]) == {None}
    process.show(-7_200, lag=4)
    assert process.values("hour", "lag")[-2:] == [None, 4]
    process.at += 86_400 * 3
    assert set(process.values("day", "lag")) == {None}


def _answer(process: str, slot: int, **figures: float) -> dict[str, Any]:
    slots = SPANS["hour"].slots
    rows = {name: [None] * (slots - 2) + [value, value + 1] for name, value in figures.items()}
    return {"process": process, "slot": slot, "rows": [[list(ORDERS), rows]]}


def test_processes_add_up() -> None:
    """Messages and memory of processes are added; of coverage the least and of ages the largest stays."""
    answers = [_answer("a", 7, lag=1, covered=50, oldest=3), _answer("b", 7, lag=10, covered=40, oldest=2)]
    charts = merged("hour", [*answers, answers[0]])  # one is asked at two addresses, and counts once

    shown = {name: values[-2:] for name, values in charts.figures(*ORDERS).items()}
    assert shown == {"lag": [11, 13], "covered": [40, 41], "oldest": [3, 4]}
    assert charts.figures("address", "none") == {}
    assert merged("hour", []).rows == {}


def test_slots_of_processes_match() -> None:
    """A process that answers before the slot of another one begins is shifted; its last slot is not known."""
    charts = merged("hour", [_answer("a", 8, lag=1), _answer("b", 7, lag=10), _answer("c", -9_999, lag=5)])

    assert charts.figures(*ORDERS)["lag"][-3:] == [10, 12, 2]
    assert len(charts.figures(*ORDERS)["lag"]) == SPANS["hour"].slots
