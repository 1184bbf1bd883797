"""Workers read the parts that producers wrote, whatever bytes they hold."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.decision import envelope as worker
from ringfence_client import Part, envelope
from tests.property import examples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
contents = st.none() | st.binary(max_size=20) | texts
names = texts.filter(lambda name: not name.startswith("_RF_"))
made = st.lists(
    st.builds(
        Part,
        contents,
        contents,
        st.none() | texts.filter(bool),
        st.lists(st.tuples(names, contents), max_size=3),
    ),
    min_size=1,
    max_size=5,
)


def raw(content: Any) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


@given(made)
@settings(max_examples=examples(1_000))
def test_round_trip(parts: list[Part]) -> None:
    """Parts come back exactly: null differs from empty, and headers keep their order and repeats."""
    sent = envelope(parts, "7")
    read = worker.decode(dict(sent.headers)["_RF_TX"], sent.value)

    assert read == [
        worker.Part(
            part.address,
            raw(part.key),
            raw(part.value),
            tuple((name, raw(value)) for name, value in part.headers),
        )
        for part in parts
    ]


anything = st.none() | st.integers() | st.binary(max_size=4) | st.text(st.characters(), max_size=4)
"""Halves of surrogate pairs too."""


@given(
    st.lists(
        st.builds(
            Part, anything, anything, anything, st.lists(st.tuples(st.just("_RF_TX") | anything, anything), max_size=2)
        ),
        max_size=3,
    )
)  # fmt: skip
@settings(max_examples=examples(1_000))
def test_whatever_is_given(parts: list[Any]) -> None:
    """Any input gives an error or an envelope that a worker reads: no envelope would go to quarantine."""
    try:
        sent = envelope(parts)
    except (TypeError, ValueError):
        return

    assert len(worker.decode(b"json/1", sent.value)) == len(parts)
