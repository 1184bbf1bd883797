"""``ringfence demo``: shows one cluster, or two with a bridge."""

from pathlib import Path

import click

from app.commands.spark_check import require_spark
from ringfence_kafka.process.command_line import config_option, refuse_connection, settings_if_any


@click.command()
@click.option(
    "--messages", type=int, help="Number of messages; not given = 100,000, or 120,000 with --bridge."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated traffic.")
@click.option("--keep", is_flag=True, help="Keep data and logs, and print their folder.")
@click.option(
    "--bridge", "bridged", is_flag=True, help="Show two clusters and a bridge between them instead."
)
@config_option
def demo(messages: int | None, seed: int, keep: bool, bridged: bool, config: Path) -> int:
    """Run a demo: broker, traffic with resends, a killed worker, a chain of handlers, an independent check.

    The chain is orders → billing → ledger: two handlers with state, of which one is killed.

    With --bridge it has two clusters and a bridge, which is killed twice. The link is cut, and the producer fails over and sends again.

    It brings its own brokers and data and touches nothing else. The report of the reconciliation run stays in data/demo.
    Exit code 0 only if every message was accepted exactly once, in order and unchanged, and each total of the chain is exact.
    """
    refuse_connection("demo")
    settings_if_any(config)  # not used here, but an invalid file on the command line is always an error
    if bridged:
        from app.demo import bridge as shown

        return shown.run_demo(shown.MESSAGES if messages is None else messages, keep, seed)
    require_spark()  # Spark is needed only in the last step, but its absence should be reported first
    from app import demo as demo_module

    return demo_module.run_demo(demo_module.MESSAGES if messages is None else messages, keep, seed)
