"""``python -m tests.mutants``: put one deliberate bug after the other into a copy and see it caught."""

import signal
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from tests.mutants.catalog import CATALOG
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Fate, Laboratory, Verdict

EXIT_NOT_WELL: Final = 1
EXIT_COULD_NOT_RUN: Final = 2
EXIT_TERMINATED: Final = 143
_TAIL_CHARACTERS: Final = 6_000


@click.command()
@click.argument("names", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Show the catalog and run nothing.")
@click.option("--jobs", type=click.IntRange(1, 8), default=1, show_default=True, help="At the same time.")
def main(names: tuple[str, ...], only_list: bool, jobs: int) -> None:
    """Show that each deliberate bug (of NAMES) is caught. Exit codes: 0 all caught; 1 one survived or does not fit; 2 a test fails without any bug."""
    chosen = _chosen(names)
    console = Console()
    if only_list:
        for mutant in chosen:
            print(f"{mutant.name}  {mutant.why}\n    {', '.join(mutant.tests)}")
        return
    with tempfile.TemporaryDirectory(prefix="ringfence-mutants-") as folder:
        laboratory = Laboratory(Path(folder))
        try:
            _require_sound(laboratory, chosen, console)
            verdicts = _judge_all(laboratory, chosen, jobs, console)
        finally:
            laboratory.end_all()
    caught = [verdict for verdict in verdicts if verdict.fate is Fate.CAUGHT]
    console.print(f"{len(caught)} of {len(verdicts)} caught")
    if len(caught) < len(verdicts):
        sys.exit(EXIT_NOT_WELL)


def _chosen(names: Sequence[str]) -> list[Mutant]:
    known = {mutant.name: mutant for mutant in CATALOG}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"no such mutant: {', '.join(unknown)}; --list shows all")
    return [known[name] for name in names] if names else list(CATALOG)


def _require_sound(laboratory: Laboratory, chosen: Sequence[Mutant], console: Console) -> None:
    for on_core in (False, True):
        tests = {test for mutant in chosen if mutant.native is on_core for test in mutant.tests}
        if not tests:
            continue
        console.print(f"{len(tests)} tests without any bug{', on the native core' if on_core else ''} ...")
        run = laboratory.unmutated(tests, on_core=on_core)
        if run.exit_code != 0:
            console.print(run.output[-_TAIL_CHARACTERS:], markup=False, highlight=False)
            console.print("Not all pass without any bug: fix that first.")
            sys.exit(EXIT_COULD_NOT_RUN)


def _judge_all(
    laboratory: Laboratory, chosen: Sequence[Mutant], jobs: int, console: Console
) -> list[Verdict]:
    verdicts = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for verdict in pool.map(laboratory.judge, chosen):
                verdicts.append(verdict)
                line = f"{verdict.fate:9} {verdict.mutant.name} ({verdict.seconds:.1f} s): {verdict.reason}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            laboratory.end_all()
            raise
    return verdicts


def _terminated(*_: object) -> None:
    sys.exit(EXIT_TERMINATED)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _terminated)
    main()
