import random
from collections import Counter
from pathlib import Path

import pytest

from tests.harness.checker.transactions import MalformedError, read
from tests.harness.history import History, Outcome, Record, Target
from tests.harness.workloads import journal
from tests.harness.workloads.catalogue import transfers
from tests.harness.workloads.journal import Journal
from tests.harness.workloads.message_groups import GroupMessage, Shape, generate
from tests.harness.workloads.plan import MALFORMED_EVERY, Plan

PLAN = Plan("topic", "name", "ids", 7, 100)


def test_resends_repeat_their_originals() -> None:
    """About the share asked for repeats an earlier message, near and far. A step gives the same message in every incarnation."""
    sent = [PLAN.message(step) for step in range(20_000)]
    again = Plan.from_json(PLAN.to_json())
    resends = [step - item.number for step, item in enumerate(sent) if item.number != step]

    assert [again.message(step) for step in range(1_000)] == sent[:1_000]
    assert 0.17 < len(resends) / len(sent) < 0.21
    assert all(item == PLAN.numbered(item.number) for item in sent)
    assert min(resends) == 1
    assert 500 < max(resends) <= PLAN.resend_reach


def test_transfers() -> None:
    """Transfers have one to six parts over all three addresses. A resend is identical, whichever process sends it."""
    load = transfers("transfers", random.Random(3), ("one", "two"))
    plan = load.plans[2]
    again = Plan.from_json(plan.to_json())
    history = History("transfers", 3, 9, lambda _: 0, others={"one": Target("1"), "two": Target("2")})
    kinds: Counter[int] = Counter()
    targets: Counter[str] = Counter()
    nameless = 0
    for number in range(1, 2_000):
        message = plan.numbered(number)
        assert again.numbered(number) == message
        record = Record("transfers", 0, number, message.group, message.value, message.headers, 0)
        if number % MALFORMED_EVERY == 0:
            with pytest.raises(MalformedError):
                read(history, record)
            continue
        parts = read(history, record)
        kinds[len(parts)] += 1
        targets.update(part.target for part in parts)
        nameless += message.id is None and all(part.id is None for part in parts)

    assert set(kinds) == {1, 2, 3, 4, 5, 6}
    assert set(targets) == {"transfers.accepted", "1", "2"}
    assert min(targets.values()) > 1_000
    assert nameless == sum(number % 97 == 0 and number % MALFORMED_EVERY > 0 for number in range(1, 2_000))


def test_journal_outlives_a_kill(tmp_path: Path) -> None:
    """A send without an outcome is in doubt, and so are outcomes since a mark that is taken back. A truncated line never happened."""
    path = tmp_path / "journal"
    writing = Journal(path)
    for number, token in enumerate((b"t0", b"t1", b"t2", b"t3")):
        writing.sending(token, 10 + number, number, b"id-%d" % number, None)
    writing.outcome(b"t0", Outcome.OK)
    writing.outcome(b"t1", Outcome.FAIL)
    writing.flush()
    mark = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"o\tt2\to")
    doubt = "unknown"
    expected = [(b"t0", 0, 10, "ok"), (b"t1", 1, 11, "fail"), (b"t2", 2, 12, doubt), (b"t3", 3, 13, doubt)]

    def found() -> list[tuple[bytes, int, int, str]]:
        return [(item.token, item.number, item.step, item.outcome.value) for item in journal.read(path)]

    assert found() == expected
    assert {(send.id, send.group) for send in journal.sends(path)[:1]} == {(b"id-0", None)}
    writing = Journal(path)
    writing.outcome(b"t2", Outcome.OK)
    writing.flush()
    assert found() != expected
    path.write_bytes(path.read_bytes() + b"s\tt4\t1")
    journal.doubt(path, mark)
    Journal(path).flush()

    assert found() == expected


SHAPES = [
    Shape(),
    Shape(messages=101, group_size=101, interleave=1),
    Shape(messages=499, group_size=7, interleave=499),
    Shape(randomized=True, ungrouped=0.3),
    Shape(group_size=211, interleave=97, zipf=1.1),
]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_groups_are_whole(shape: Shape) -> None:
    """A group's messages count to its last one, which has the mark. As many groups are open at once as the shape says."""
    groups: dict[str, list[GroupMessage]] = {}
    opened: set[str] = set()
    most = 0
    for item in (made := generate(shape, 5)):
        groups.setdefault(item.label, []).append(item)
        opened.add(item.label)
        most = max(most, sum(other.startswith("g") and "none" not in other for other in opened))
        if item.last:
            opened.remove(item.label)

    assert len(made) == shape.messages
    for messages in groups.values():
        assert [message.sequence for message in messages] == list(range(len(messages)))
        assert [message.last for message in messages] == [False] * (len(messages) - 1) + [True]
        assert len(messages) <= shape.group_size
    grouped = len({item.label for item in made if item.grouped})
    assert min(shape.interleave, grouped) * 0.6 <= most <= shape.interleave
