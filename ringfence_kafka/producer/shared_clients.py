"""Connections that producers share.

A producer with a client of its own has two or three sockets, a task and metadata of its own. A thousand producers would need more sockets
than most systems allow a process. With this module many producers use one client, through a *share* each. A share passes the producer's
requests to the client. When a producer ends, its share ends, and the client stays.

All shares have the same metadata: the one client requests it for all topics that any of them writes to.
"""

import asyncio
from typing import Final

from ringfence_kafka.aiokafka_patches.shared_client import ClientShare, SharedClient
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.config.settings import KafkaSettings

CLIENTS_MAX: Final = 8
"""A broker answers the requests of one connection one after the other: with several, one slow answer holds up few."""
TURNS_MAX: Final = 256
"""Fences and transactions at once. With a thousand at once, each would last as long as all together, beyond every time-out, and delay the
readers of its topics for so long. The number must not be too small either, because a stuck transaction takes a place from the others."""


class ProducerClients:
    """A few clients, made when they are needed; each new producer gets a share of the one that has the fewest."""

    def __init__(self, kafka: KafkaSettings, clients_max: int = CLIENTS_MAX) -> None:
        """Nothing is connected yet."""
        self._kafka = kafka
        self._clients_max = clients_max
        self._clients: list[SharedClient] = []
        self._stopped = False
        self.turns = asyncio.Semaphore(TURNS_MAX)
        """One to be taken for each fence and each transaction; never a second one by who has one. Lanes take none: so many open at a
        time as there are places, and each has one transaction at most."""

    def share(self) -> ClientShare:
        """Return a shared client for one producer, which closes it."""
        if self._stopped:
            raise StoppedError
        client = min(self._clients, key=lambda client: client.shares, default=None)
        if client is None or (client.shares and len(self._clients) < self._clients_max):
            asker = self._clients[0] if self._clients else None
            client = SharedClient(asker=asker, **client_options(self._kafka))
            self._clients.append(client)
        return ClientShare(client)

    async def stop(self) -> None:
        """Close all connections. Never raises."""
        self._stopped = True
        clients, self._clients = self._clients, []
        await asyncio.gather(*(client.end() for client in clients))
