"""Commands that write as lanes while no worker runs. After an interruption, a new run continues them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaError

from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import BrokerUnavailableError, RingfenceError, named
from ringfence_kafka.process import failpoints
from ringfence_kafka.process.step_progress import Steps, steps
from ringfence_kafka.producer.transactional import FencedError
from ringfence_kafka.readers.log_reader import LogStalledError
from ringfence_kafka.readers.read_counts import observed

Result = TypeVar("Result")
Error = TypeVar("Error", bound=RingfenceError)

AGAIN: Final = "run this again: it continues where it ended"


def worker_came(settings: Settings, error: type[Error]) -> Error:
    """Return the error of a command that is not the only writer."""
    return error(
        "a worker, or another run of a verb that writes rings, has started meanwhile: stop all workers of "
        f"{settings.app.id}, let the other run end, then {AGAIN}"
    )


def carry_out(
    settings: Settings, work: Callable[[Steps], Coroutine[Any, Any, Result]], error: type[RingfenceError]
) -> Result:
    """Run the work of a command, and show its steps.

    Args:
        settings: Configuration.
        work: Coroutine function; gets the steps, which count the records read.
        error: Error class of the command.

    Raises:
        RingfenceError: ``error``, also if a worker has fenced the command.
        BrokerUnavailableError: The cluster does not answer.
    """
    failpoints.install_from_environment()
    try:
        with steps() as progress, observed(progress.add_records):
            return asyncio.run(work(progress))
    except FencedError as fenced:
        raise worker_came(settings, error) from fenced
    except (KafkaError, LogStalledError, TimeoutError) as failure:
        raise BrokerUnavailableError(
            f"{named(failure)}: look at the brokers and at this user's rights, then {AGAIN}"
        ) from failure
