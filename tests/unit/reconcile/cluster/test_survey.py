"""Positions of lanes: from the committed offsets and from the changelogs."""

import json
from typing import Any

from reconcile.cluster.admin import TopicFacts
from reconcile.cluster.survey import _judged, _parsed


def _recorded(lane: int, lanes: int, next_offsets: dict[str, int], topic_ids: dict[str, str]) -> Any:
    meta = {
        "format": 3, "app": "app", "address": "a", "capacity": 9, "max_age_ms": 0, "lanes": lanes,
        "next_offsets": next_offsets, "topic_ids": topic_ids,
    }  # fmt: skip
    return _parsed(json.dumps(meta).encode(), lane)[1]


def test_a_lane_counts_even_if_its_offset_is_gone() -> None:
    """Offsets of a group expire, or somebody deletes them: a lane continues at the position in its changelog."""
    topics = {name: TopicFacts(f"id of {name}", 2, readable=True) for name in ("a", "b", "new")}
    lanes = {
        "a": {
            0: _recorded(0, 0, {"a": 7, "gone": 1}, {"a": "id of a"}),
            1: _recorded(1, 0, {"a": 5}, {"a": "id of a"}),
        },
        "b": {0: _recorded(0, 1, {"b/0": 3, "b/1": 4}, {"b": "id of b"})},
        "new": {0: _recorded(0, 0, {"new": 9}, {"new": "another id"})},
    }
    committed = {("a", 0): None, ("a", 1): 6, ("b", 0): 2, ("b", 1): None, ("new", 0): None}

    assert _judged(committed, lanes, topics) == {
        ("a", 0): 7, ("a", 1): 6, ("b", 0): 3, ("b", 1): 4, ("new", 0): None,
    }  # fmt: skip
