"""``python -m app.check.bridge --origin HOST:PORT --target HOST:PORT --address orders``: check of a bridge.

Producers sent all records of the origin's input, and the records without a bridge header of the target's
input. The target must accept each ID once, unchanged, and in order within each group and route.

Exit codes: 0 exact, 1 not exact, 2 could not judge.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from app.check.output import fault_cell, print_faults, standard_output
from app.check.records import HOP_HEADER, ID_HEADER, SOURCE_HEADER, CannotJudgeError, Faults, Record, text
from app.check.topic_reader import read_topic

_OURS: Final = "_RF_"
_KINDS: Final = ("lost", "doubled", "out of order", "changed")


@dataclass
class Crossing(Faults):
    """Judgement of a bridge. It is exact if the target accepted every ID once, in order, unchanged."""

    sent_to_origin: int = 0
    sent_to_target: int = 0
    distinct: int = 0
    accepted: int = 0
    over_the_bridge: int = 0
    """Records that the bridge wrote."""
    bridged_again: int = 0
    """Records that the bridge wrote again."""
    failed_over: int = 0
    """IDs that the bridge forwarded and the producer also sent to the target."""


def judge(origin: Sequence[Record], target: Sequence[Record], accepted: Sequence[Record]) -> Crossing:
    """Compare the inputs of both clusters with the accepted topic of the target, each in offset order.

    Raises:
        CannotJudgeError: A message has no ID, so it cannot be identified.
    """
    direct = [item for item in target if HOP_HEADER not in dict(item.headers)]
    hops = [dict(item.headers)[HOP_HEADER] for item in target if HOP_HEADER in dict(item.headers)]
    sent: dict[bytes, list[Record]] = {}
    for item in (*origin, *direct):
        sent.setdefault(_id(item), []).append(item)
    found = Crossing(
        sent_to_origin=len(origin),
        sent_to_target=len(direct),
        distinct=len(sent),
        accepted=len(accepted),
        over_the_bridge=len(hops),
        bridged_again=len(hops) - len(set(hops)),
        failed_over=len({_id(item) for item in origin} & {_id(item) for item in direct}),
    )
    counts = Counter(_id(item) for item in accepted)
    found.lost = [f"{_name(copies[0])}: not accepted" for known, copies in sent.items() if not counts[known]]
    found.doubled = [f"{text(known)}: accepted {count} times" for known, count in counts.items() if count > 1]
    for entry in accepted:
        copies = sent.get(_id(entry), ())
        if _content(entry) not in map(_content, copies):
            found.changed.append(f"{_name(entry)}: {'not as it was sent' if copies else 'nobody sent it'}")
    found.out_of_order = list(_out_of_order(origin, target, accepted))
    return found


def _out_of_order(
    origin: Sequence[Record], target: Sequence[Record], accepted: Sequence[Record]
) -> Iterator[str]:
    """Yield groups out of order. A group's bridged and direct records have separate orders."""
    first = {_id(item): (item.partition, item.offset) for item in reversed(origin)}
    places = {(item.partition, item.offset): item for item in target}
    last: dict[tuple[bytes | None, bool], tuple[int, int]] = {}
    home: dict[bytes | None, int] = {}
    for item in accepted:
        topic, _, offset = (dict(item.headers).get(SOURCE_HEADER) or b"").rpartition(b"/")
        place = int(topic.rpartition(b"/")[2] or -1), int(offset or -1)
        source = places.get(place)
        if source is None:
            yield f"{_name(item)}: names no input record in {SOURCE_HEADER}"
            continue
        if home.setdefault(item.key, item.partition) != item.partition:
            yield f"{_name(item)}: its group is in the accepted partitions {home[item.key]} and {item.partition}"
        bridged = HOP_HEADER in dict(source.headers)
        position = first.get(_id(item), (-1, -1)) if bridged else place
        if position < last.get((item.key, bridged), (-1, -1)):
            yield f"{_name(item)}: accepted after a later one of its group"
        last[item.key, bridged] = position


def _id(record: Record) -> bytes:
    found = dict(record.headers).get(ID_HEADER)
    if found is None:
        raise CannotJudgeError(f"{record.partition}/{record.offset} has no {ID_HEADER}")
    return found


def _content(record: Record) -> tuple[object, ...]:
    theirs = tuple(header for header in record.headers if not header[0].startswith(_OURS))
    return record.key, record.value, theirs, record.timestamp


def _name(record: Record) -> str:
    return f"{text(_id(record))} (group {text(record.key)})"


def report(console: Console, found: Crossing) -> None:
    """Print the table, and the first problems of each kind."""
    table = Table(title="Messages sent to both clusters, and messages accepted at the target")
    for column in ("sent to origin", "sent to target", "distinct", "accepted", *_KINDS):
        table.add_column(column, justify="right")
    numbers = [found.sent_to_origin, found.sent_to_target, found.distinct, found.accepted]
    by_kind = found.by_kind(*_KINDS)
    table.add_row(*(f"{number:,}" for number in numbers), *map(fault_cell, map(len, by_kind.values())))
    console.print(table)
    console.print(
        f"The bridge wrote {found.over_the_bridge:,} records, {found.bridged_again:,} of them once more than needed. "
        f"{found.failed_over:,} messages came both ways, because their producer was unsure and sent them again to the target."
    )
    print_faults(console, by_kind)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read both clusters, judge them, and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="Compares two clusters' inputs with what one accepted.")
    parser.add_argument("--origin", required=True, metavar="HOST:PORT")
    parser.add_argument("--target", required=True, metavar="HOST:PORT")
    parser.add_argument("--address", required=True, metavar="INPUT")
    options = parser.parse_args(arguments)
    try:
        found = judge(
            read_topic(options.origin, options.address),
            read_topic(options.target, options.address),
            read_topic(options.target, f"{options.address}.accepted"),
        )
    except CannotJudgeError as error:
        sys.stderr.write(f"the check could not read everything: {error}\n")
        return 2
    report(standard_output(), found)
    return 0 if found.exact else 1


if __name__ == "__main__":
    sys.exit(main())
