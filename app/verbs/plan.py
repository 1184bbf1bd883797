"""The verb ``plan``."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from app.plan import units
from app.plan.demand import Demand
from app.repair.selection import span
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError
from ringfence_kafka.program import NumberRange, config_option, refuse_connection, settings_if_any
from tables.table import IN_PYTHON_MAX

_DEFAULTS: Final = Demand(1, 1, 0)


class _Quantity(click.ParamType):
    """A number with a unit."""

    def __init__(self, name: str, read: Callable[[str], float]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """What is none is an error of usage."""
        if isinstance(value, float):
            return value
        try:
            found = self._read(value)
        except (ValueError, ConfigurationError) as error:
            self.fail(str(error), param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value[:20]}… is more than can be reckoned with", param, ctx)
        return found


DOES_NOT_FIT: Final = 1
BROKER_CORES_MAX: Final = 10_000

_COUNT: Final = _Quantity("NUMBER", units.count_of)
_BYTES: Final = _Quantity("SIZE", units.bytes_of)
_TIME: Final = _Quantity("TIME", span)
_SHARE: Final = NumberRange(0, 1)


@click.command()
@click.option("--rate", type=_COUNT, required=True, help="Messages/s in the busiest minutes: 500, 5k, 1.5M.")
@click.option(
    "--size", type=_BYTES, default="100B", show_default=True, help="Of a message: key, value, headers."
)
@click.option("--ids", type=_COUNT, help="IDs to remember, all lanes together: 80k, 100M.")
@click.option(
    "--resends-within",
    "within",
    type=_TIME,
    help="Instead of --ids: all IDs of that time, such as 30m, 2h, 7d.",
)
@click.option(
    "--outage", type=_TIME, default="1h", show_default=True, help="How long workers or consumers may be away."
)
@click.option(
    "--catch-up", type=_TIME, help="Within which they are to be through with it; without it as long."
)
@click.option(
    "--largest-group", type=_SHARE, default=0.0, help="Its share of all messages, 0 to 1: it is in one lane."
)
@click.option(
    "--forwarded",
    type=_SHARE,
    default=0.0,
    help="Share that producers send to another partition than its home.",
)
@click.option("--path", type=click.Choice(["native", "python"]), default="native", show_default=True)
@click.option("--readers", type=click.IntRange(0), default=1, show_default=True, help="Groups of consumers.")
@click.option("--replicas", type=click.IntRange(1), default=3, show_default=True, help="Of each topic.")
@click.option("--brokers", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--broker-cores", type=NumberRange(0, BROKER_CORES_MAX, min_open=True), default=8.0, show_default=True
)
@click.option(
    "--broker-network", type=_BYTES, default="1250MB", show_default=True, help="A second, each way; of each."
)
@click.option("--worker-memory", type=_BYTES, default="2GiB", show_default=True, help="Of each, at most.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document for programs; bytes, seconds, cores."
)
@config_option
def plan(
    rate: float,
    size: float,
    ids: float | None,
    within: float | None,
    outage: float,
    catch_up: float | None,
    largest_group: float,
    forwarded: float,
    path: str,
    readers: int,
    replicas: int,
    brokers: int,
    broker_cores: float,
    broker_network: float,
    worker_memory: float,
    as_json: bool,
    config: Path,
) -> int:
    """What a load needs: partitions, workers, memory, disk, traffic of brokers, and how long restores take.

    It asks no broker. It reckons from what was measured (docs/sizing.md has the table), and says what gives first and what
    was never measured so. Exit code 1: brokers or workers as given do not carry it, and why; 2: no number of workers does, and what to change. Without --ids and --resends-within: the IDs of the configuration's addresses.
    """
    refuse_connection("plan", "which asks no broker")
    settings = settings_if_any(config)
    from app.plan import limits, model, show  # noqa: PLC0415

    for option, value in (
        ("--rate", rate),
        ("--size", size),
        ("--catch-up", catch_up),
        ("--broker-network", broker_network),
    ):
        if value == 0:
            raise click.BadParameter("0 needs no plan: give more", param_hint=option)
    demand = Demand(
        rate=rate,
        size=size,
        ids=_ids(rate, ids, within, settings, config),
        outage_s=outage,
        catch_up_s=catch_up or 0,
        largest_group=largest_group,
        forwarded=forwarded,
        native=path == "native",
        replicas=replicas,
        readers=readers,
        brokers=brokers,
        broker_cores=broker_cores,
        broker_network=broker_network,
        worker_memory=worker_memory,
        buffer_bytes=settings.app.buffer_bytes_max,
        resident_ids=min(settings.app.resident_ids_max, math.inf if path == "native" else IN_PYTHON_MAX),
        session_s=settings.app.session_timeout,
    )
    if replicas > brokers:
        raise click.UsageError(f"--replicas {replicas} needs as many brokers, and there are {brokers}")
    planned = model.plan(demand)
    told = (demand, planned, limits.limits(demand, planned), limits.assumptions(demand, planned))
    if as_json:
        click.echo(json.dumps(show.document(*told), indent=2))
    else:
        show.show(*told)
    return DOES_NOT_FIT if told[2][0].times < 1 else 0


def _ids(rate: float, ids: float | None, within: float | None, settings: Settings, config: Path) -> float:
    if ids is not None and within is not None:
        raise click.UsageError("--ids and --resends-within: choose one")
    if ids is not None:
        return ids
    if within is not None:
        return rate * within
    if settings.addresses:
        return float(sum(each.partitions * each.id_cache_size for each in settings.addresses))
    raise click.UsageError(
        f"how many IDs are to be remembered? --ids 10M, or --resends-within 2h; {config} has no addresses that would say it"
    )
