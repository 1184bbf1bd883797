"""``python -m app.check.chain --bootstrap HOST:PORT [--killed FILE]``: orders → billing → ledger, two handlers that send.

A line of ``billing`` has the amount of an order and the total of its account; ``ledger`` adds the number of
the entry. Each accepted order must be in both topics exactly once, in the order of its account, and also in
the accepted topics behind them.

Exit codes: 0 exact, 1 not exact, 2 could not judge.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.check.output import print_faults, standard_output
from app.check.records import ID_HEADER, PART_HEADER, SOURCE_HEADER, CannotJudgeError, Faults, Record, text
from app.check.topic_reader import read_topic

ORDERS: Final = "orders.accepted"
_KINDS: Final = ("lost", "doubled", "out of order", "wrong")
TOPICS: Final = ("billing", "billing.accepted", "ledger", "ledger.accepted")


class Entry(NamedTuple):
    """Expected entry of the ledger for an order."""

    place: int
    """Rank of the order among accepted orders, by partition and offset."""
    account: bytes | None
    line: dict[str, Any]


@dataclass
class Chained(Faults):
    """Judgement of a chain.

    A line is wrong if its total, amount, number or account is, or if it has no order or no own ID.
    """

    orders: int
    accounts: int


def judge(orders: Sequence[Record], results: Mapping[str, Sequence[Record]]) -> Chained:
    """Compare accepted orders with each topic of the chain, by partition and offset.

    Raises:
        CannotJudgeError: An order has no amount or no source.
    """
    wanted = _wanted(orders)
    found = Chained(len(orders), len({entry.account for entry in wanted.values()} - {None}))
    for topic, records in results.items():
        _judge_topic(topic, records, wanted, found)
    return found


def _wanted(orders: Sequence[Record]) -> dict[str, Entry]:
    """Return the expected entry for each order, by the order's name."""
    totals: Counter[bytes] = Counter()
    numbers: Counter[bytes] = Counter()
    wanted: dict[str, Entry] = {}
    for place, order in enumerate(orders):
        name, amount = _name(order), _amount(order)
        line: dict[str, Any] = {"order": name, "amount": amount, "total": amount, "entry": None}
        if (account := order.key) is not None:
            totals[account] += amount
            numbers[account] += 1
            line |= {"total": totals[account], "entry": numbers[account]}
        wanted[name] = Entry(place, account, line)
    return wanted


def _judge_topic(topic: str, records: Sequence[Record], wanted: Mapping[str, Entry], found: Chained) -> None:
    counts: Counter[str] = Counter()
    ids: set[bytes | None] = {None}
    last: dict[bytes, int] = {}
    home: dict[bytes, int] = {}
    for record in records:
        line = _line(record)
        name = line.get("order")
        place = f"{topic}/{record.partition}/{record.offset} (account {text(record.key)}, order {name})"
        if not isinstance(name, str) or name not in wanted:
            found.wrong.append(f"{place}: no accepted order has this name")
            continue
        entry = wanted[name]
        counts[name] += 1
        duplicate_id = dict(record.headers).get(ID_HEADER)
        if counts[name] > 1:
            found.doubled.append(f"{place}: for the {counts[name]}. time")
        elif duplicate_id in ids:
            found.wrong.append(f"{place}: its ID {text(duplicate_id)} is missing, or that of another line")
        ids.add(duplicate_id)
        asked = dict(entry.line)
        if not topic.startswith("ledger"):
            del asked["entry"]
        if record.key != entry.account or line != asked:
            found.wrong.append(f"{place}: {line}, and {text(entry.account)} has {asked}")
        if record.key is None:
            continue
        if home.setdefault(record.key, record.partition) != record.partition:
            found.out_of_order.append(f"{place}: its account is in partition {home[record.key]} too")
        if entry.place < last.get(record.key, -1):
            found.out_of_order.append(f"{place}: after a later order of its account")
        last[record.key] = entry.place
    found.lost += [f"order {name} is not in {topic}" for name in wanted if not counts[name]]


def _name(order: Record) -> str:
    """Return the order's source, with the part number for a part of a transaction."""
    headers = dict(order.headers)
    source, part = headers.get(SOURCE_HEADER), headers.get(PART_HEADER)
    if source is None:
        raise CannotJudgeError(f"{ORDERS}/{order.partition}/{order.offset} has no {SOURCE_HEADER}")
    return source.decode() if part is None else f"{source.decode()}#{part.decode().partition('/')[0]}"


def _amount(order: Record) -> int:
    """Return the amount of an order: JSON with an amount, or a number; 0 without a value."""
    if order.value is None:
        return 0
    try:
        value = json.loads(order.value)
        return value if isinstance(value, int) else int(value["amount"])
    except (KeyError, TypeError, ValueError) as error:
        raise CannotJudgeError(
            f"{ORDERS}/{order.partition}/{order.offset} has no amount: {error!r}"
        ) from error


def _line(record: Record) -> dict[str, Any]:
    try:
        line = json.loads(record.value or b"")
    except ValueError:
        return {}
    return line if isinstance(line, dict) else {}


def summary(found: Chained, before_kill: int | None) -> list[str]:
    """Return one or two lines that summarize the result."""
    result = ", ".join(f"{len(faults):,} {kind}" for kind, faults in found.by_kind(*_KINDS).items())
    lines = [
        f"orders → billing → ledger, two handlers that send: {found.orders:,} orders of {found.accounts:,} accounts, {result}."
    ]
    if found.exact:
        lines[0] += " All totals are exact."
    if before_kill is not None:
        lines.append(
            f"{before_kill:,} of them were in billing when its handler was killed with SIGKILL. Another process did the rest."
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the topics, judge them, and print the result; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Compares accepted orders with what two handlers made of them."
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--killed", type=Path, help="JSON: partition of billing -> its end when the handler died"
    )
    options = parser.parse_args(arguments)
    try:
        results = {topic: read_topic(options.bootstrap, topic) for topic in TOPICS}
        found = judge(read_topic(options.bootstrap, ORDERS), results)
    except CannotJudgeError as error:
        sys.stderr.write(f"the check could not read everything: {error}\n")
        return 2
    before_kill = None
    if options.killed:
        ends = json.loads(options.killed.read_text("utf-8"))
        before_kill = sum(record.offset < ends[str(record.partition)] for record in results["billing"])
    console = standard_output()
    for line in summary(found, before_kill):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    print_faults(console, found.by_kind(*_KINDS))
    return int(not found.exact)


if __name__ == "__main__":
    sys.exit(main())
