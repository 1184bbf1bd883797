"""Returns to the bootstrap servers if no known broker answers (KIP-899).

aiokafka asks only the brokers in its last metadata. If all of them move to other addresses at once, it asks the old addresses forever.
Java clients and librdkafka start again from ``bootstrap.servers``, as this module does.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError

log = logging.getLogger("ringfence.kafka")

_CLUSTER_ID: Final = "_ringfence_cluster_id"
_update_metadata: Final[Callable[[Any, Any], None]] = ClusterMetadata.update_metadata


def install() -> None:
    """Store the cluster ID in each cluster's metadata."""
    ClusterMetadata.update_metadata = _update_and_remember


async def ask_bootstrap_servers(client: Any, cluster: Any, request: Any) -> bool:
    """Query the bootstrap servers for metadata after no known broker answered. Return whether ``cluster`` was updated.

    A response of another cluster is refused: its topics may have the same names with other records.
    """
    known = {(broker.host, broker.port) for broker in client.cluster.brokers()}
    for host, port, _ in client.hosts:
        if (host, port) in known:
            continue  # it was just asked by its node ID
        metadata = await _ask(client, host, port, request)
        if metadata is None or not metadata.brokers or _of_another_cluster(client, host, port, metadata):
            continue
        cluster.update_metadata(metadata)
        addresses = sorted(f"{broker.host}:{broker.port}" for broker in cluster.brokers())
        log.warning(
            "no known broker answered; the client now uses the brokers that bootstrap server %s:%d names: "
            "%s",
            host, port, ", ".join(addresses),
        )  # fmt: skip
        return True
    return False


def rebootstrapping(
    ask: Callable[[Any, Any, Any], Awaitable[bool]], request: Callable[[Any], Any]
) -> Callable[[Any, Any, Any], Awaitable[bool]]:
    """Extend ``AIOKafkaClient._metadata_update``, given as ``ask``, by the bootstrap servers.

    ``request`` returns the metadata request for a list of topics; None = all.
    """

    async def _metadata_update(client: Any, cluster: Any, topics: Any) -> bool:
        if await ask(client, cluster, topics):
            return True
        return await ask_bootstrap_servers(client, cluster, request(list(topics) if topics else None))

    return _metadata_update


async def _ask(client: Any, host: str, port: int, request: Any) -> Any:
    """Return a server's metadata; None = it does not answer."""
    try:
        connection = await create_conn(
            host,
            port,
            client_id=client._client_id,
            request_timeout_ms=client._request_timeout_ms,
            ssl_context=client._ssl_context,
            security_protocol=client._security_protocol,
            max_idle_ms=client._connections_max_idle_ms,
            sasl_mechanism=client._sasl_mechanism,
            sasl_plain_username=client._sasl_plain_username,
            sasl_plain_password=client._sasl_plain_password,
            sasl_kerberos_service_name=client._sasl_kerberos_service_name,
            sasl_kerberos_domain_name=client._sasl_kerberos_domain_name,
            sasl_oauth_token_provider=client._sasl_oauth_token_provider,
        )
    except (OSError, KafkaError, TimeoutError):
        return None
    try:
        return await connection.send(request)
    except (KafkaError, TimeoutError):
        return None
    finally:
        connection.close()


def _of_another_cluster(client: Any, host: str, port: int, metadata: Any) -> bool:
    ours, its = getattr(client.cluster, _CLUSTER_ID, None), getattr(metadata, "cluster_id", None)
    if ours is None or its is None or ours == its:
        return False
    log.error(
        "bootstrap server %s:%d belongs to cluster %s, but this process works with cluster %s. Its answer "
        "is ignored, and messages wait. Correct bootstrap_servers, or restart the process to work with the "
        "other cluster",
        host, port, its, ours,
    )  # fmt: skip
    return True


def _update_and_remember(cluster: Any, metadata: Any) -> None:
    if metadata.brokers and getattr(metadata, "cluster_id", None) is not None:
        setattr(cluster, _CLUSTER_ID, metadata.cluster_id)
    _update_metadata(cluster, metadata)
