"""Where a Ringfence worker spends its CPU time."""

import json
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from app.embedded.broker import EmbeddedBroker
from bench import topics
from bench.contenders import ringfence
from bench.errors import BenchError
from bench.job import Job, perform
from bench.traffic import Plan, generate, publish

INPUT: Final = "bench"
APP_ID: Final = "bench-profile"


def run(broker: EmbeddedBroker, folder: Path, plan: Plan, functions: int, console: Console) -> None:
    """Run one worker over the plan's messages under the sampler and print the shares.

    Raises:
        BenchError: the run failed, or nothing was sampled.
    """
    bootstrap = broker.bootstrap_servers
    topics.create(bootstrap, INPUT, plan.partitions)
    console.print(f"producing {plan.messages:,} messages")
    publish(bootstrap, INPUT, generate(plan))
    worker = ringfence.prepare(folder / "worker", bootstrap, APP_ID, INPUT, plan.ring)
    result = folder / "profile.json"
    # The command is `-m app VERB ...`; the verb and what follows go to the sampled command line.
    command = ("-m", "bench.sampled_worker", str(result), *worker.command[2:])
    job = Job("ringfence", command, APP_ID, INPUT, worker.output, plan.partitions, plan.messages)
    console.print("running the worker")
    measured = perform(job, bootstrap, broker.pids, folder / "worker.log")
    console.print(
        f"{measured.rate:,.0f} messages/s and {measured.cpu_s_per_million:.2f} CPU s per million, sampler included"
    )
    found = json.loads(result.read_text("utf-8"))
    if not found["areas"]:
        raise BenchError("nothing was sampled: take more with --messages")
    _show("area", found["areas"], len(found["areas"]), plan.messages, console)
    _show("function (innermost)", found["functions"], functions, plan.messages, console)


def _show(heading: str, seconds: dict[str, float], rows: int, messages: int, console: Console) -> None:
    whole = sum(seconds.values())
    table = Table()
    table.add_column(heading, overflow="fold")
    table.add_column("share", justify="right")
    table.add_column("CPU s / million", justify="right")
    for name, spent in sorted(seconds.items(), key=lambda each: -each[1])[:rows]:
        table.add_row(name, f"{spent / whole:.1%}", f"{spent / messages * 1e6:.2f}")
    console.print(table)
