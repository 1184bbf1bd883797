import json
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from tests.harness.checker.check import Anomaly, check
from tests.harness.history import Record
from tests.support.exact_history import SECOND
from tests.support.histories import A, B, C, accept, arrive, found, only, quarantine, source, story

RICH = arrive(0, A, headers=(("x", b"1"), ("x", None), ("y", b""), ("_RF_SOURCE", b"my"), ("_RF_KEY", b"k")))
GOOD = RICH._replace(
    topic="orders.accepted",
    headers=(("_AMQ_DUPL_ID", A), ("t", b"0-0"), ("x", b"1"), ("x", None), ("y", b""), source(RICH)),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": None},
        {"headers": (*GOOD.headers[1:],)},
        {"headers": (*GOOD.headers, ("z", b""))},
        {"headers": (*GOOD.headers[:2], ("x", None), ("x", b"1"), *GOOD.headers[4:])},
        {"headers": (*GOOD.headers[:3], ("x", b""), *GOOD.headers[4:])},
        {"headers": (("_RF_SOURCE", b"my"), *GOOD.headers)},
        {"headers": (*GOOD.headers, ("_RF_KEY", b"g"))},
    ],
)
def test_corrupted(changes: dict[str, Any]) -> None:
    """Any change to an accepted record is reported. Headers that the user wrote under Ringfence's names are replaced."""
    assert check(story([RICH], [GOOD])) == []
    finding = only(story([RICH], [GOOD._replace(**changes)]))
    assert (finding.anomaly, finding.places) == (Anomaly.CORRUPTED, (RICH.place, GOOD.place))


def test_key_and_group() -> None:
    """The accepted key is the group if the two differ, and ``_RF_KEY`` has the key, null too."""

    def group(record: Record) -> bytes | None:
        return record.header("region") or b"qpid.no-group"

    plain = arrive(0, A, b"k")
    north = arrive(1, B, b"n", headers=(("region", b"n"),))
    keyless = arrive(2, C, None)
    good = accept(plain, north, keyless)
    good[0] = good[0]._replace(key=b"qpid.no-group", headers=(*good[0].headers, ("_RF_KEY", b"k")))
    good[2] = good[2]._replace(key=b"qpid.no-group", headers=(*good[2].headers, ("_RF_KEY", None)))
    history = story([plain, north, keyless], good, group_of=group)

    assert check(history) == []
    for number in (0, 2):
        bad = list(good)
        bad[number] = bad[number]._replace(headers=bad[number].headers[:-1])
        assert found(replace(history, accepted=bad)) == {"CORRUPTED": 1}
    assert found(replace(history, group_of=lambda record: record.key))["CORRUPTED"] == 2


def test_quarantined_by_size_and_digest() -> None:
    """A value that did not fit is named by both; then headers may be missing as well, ours excepted."""
    digest = {"bytes": 1, "blake2b_256": blake2b(b"v", digest_size=32).hexdigest()}
    named = quarantine(SECOND)._replace(value=json.dumps(digest).encode())
    bare = named._replace(key=None, headers=named.headers[-2:])
    history = story([SECOND], [])

    assert check(replace(history, quarantined=[named])) == []
    assert check(replace(history, quarantined=[bare])) == []
    wrong = named._replace(value=json.dumps(digest | {"bytes": 2}).encode())
    assert found(replace(history, quarantined=[wrong])) == {"CORRUPTED": 1}
    assert found(replace(history, quarantined=[bare._replace(value=b"v")])) == {"CORRUPTED": 1}
