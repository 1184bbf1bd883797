"""Retries while a broker is away during the start of a worker."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka.errors import KafkaError

from ringfence_kafka.errors import BrokerUnavailableError, named

log: Final = logging.getLogger("ringfence.worker")

AGAIN_S: Final = 1.0


async def connected(service: Any, connect: Callable[[], Awaitable[None]]) -> bool:
    """Retry until ``connect`` succeeds, and log the first failure; False if the service stops first."""
    logged = False
    while True:
        try:
            await connect()
        except (KafkaError, OSError, BrokerUnavailableError) as error:
            if not logged:
                logged = True
                reason = error if isinstance(error, BrokerUnavailableError) else named(error)
                log.warning(
                    "the brokers became unreachable while this worker started; it retries: %s", reason
                )
            await asyncio.sleep(AGAIN_S)
            if service.should_stop:
                return False
        else:
            return True
