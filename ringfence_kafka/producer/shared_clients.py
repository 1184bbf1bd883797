"""Connections that producers share.

A producer with its own client has two or three sockets, a task and metadata. A thousand producers would need more sockets than most
systems allow a process. Here many producers use one client, each through a *share* that passes requests on. When a producer ends, its
share ends and the client stays.

All shares have the same metadata: the client requests them for all topics of its producers.
"""

import asyncio
from typing import Final

from ringfence_kafka.aiokafka_patches.shared_client import ClientShare, SharedClient
from ringfence_kafka.auth.client_options import client_options
from ringfence_kafka.concurrency.coalesce import StoppedError
from ringfence_kafka.config.settings import KafkaSettings

CLIENTS_MAX: Final = 8
"""Maximum number of clients. A broker processes the requests of one connection one at a time, so a slow response delays only few
producers."""
TURNS_MAX: Final = 256
"""Maximum number of simultaneous fences and transactions. A thousand at once would exceed every time-out and block readers of their
topics. The number must not be too small either, because a stuck transaction takes a turn from the others."""


class ProducerClients:
    """A few clients, created on demand. Each new producer gets a share of the client with the fewest shares."""

    def __init__(self, kafka: KafkaSettings, clients_max: int = CLIENTS_MAX) -> None:
        """Create the pool, without connections."""
        self._kafka = kafka
        self._clients_max = clients_max
        self._clients: list[SharedClient] = []
        self._stopped = False
        self.turns = asyncio.Semaphore(TURNS_MAX)
        """Semaphore for fences and transactions; a holder must not acquire it twice. Lanes do not use it: the number of opening lanes is
        limited, and each lane has at most one transaction."""

    def share(self) -> ClientShare:
        """Return a share for one producer, which closes it."""
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
