"""``python -m app.check --bootstrap HOST:PORT --topics orders=orders.accepted [--topics ...] [--seconds S] [--killed FILE]``.

Exit codes: 0 exact, 1 not exact, 2 could not judge.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from app.check.judge import judge, straddling
from app.check.output import report, standard_output
from app.check.records import CannotJudgeError
from app.check.topic_reader import read_topic


def main(arguments: Sequence[str] | None = None) -> int:
    """Read both sides, judge them, and print the table; return the exit code."""
    parser = argparse.ArgumentParser(description="Compares input and accepted topics, record by record.")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--topics", required=True, action="append", metavar="INPUT=ACCEPTED")
    parser.add_argument("--seconds", type=float, default=0.0, help="how long the run took, for the table")
    parser.add_argument(
        "--killed", type=Path, help="JSON: input topic -> partition -> offset when the worker died"
    )
    options = parser.parse_args(arguments)
    killed = json.loads(options.killed.read_text("utf-8")) if options.killed else {}
    pairs = {address: accepted for address, _, accepted in (topic.partition("=") for topic in options.topics)}
    try:
        inputs = {address: read_topic(options.bootstrap, address) for address in pairs}
        judgements = judge(
            inputs, {address: read_topic(options.bootstrap, pairs[address]) for address in pairs}
        )
        for judgement in judgements:
            killed_at = {int(number): offset for number, offset in killed.get(judgement.address, {}).items()}
            judgement.straddling = straddling(judgement.address, inputs[judgement.address], killed_at)
    except CannotJudgeError as error:
        sys.stderr.write(f"the check could not read everything: {error}\n")
        return 2
    report(standard_output(), judgements, options.seconds)
    return 0 if all(judgement.exact for judgement in judgements) else 1


if __name__ == "__main__":
    sys.exit(main())
