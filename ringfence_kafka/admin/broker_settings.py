"""Queries broker settings, and finds those that are too tight for a configuration."""

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from ringfence_kafka.broker_limits import (
    BRIDGE_SESSION_TIMEOUT_MS,
    METADATA_LIMIT,
    OFFSET_METADATA_BYTES,
    SESSION_MAX,
    SESSION_MIN,
    TRANSACTION_LIMIT,
    TRANSACTION_TIMEOUT_MS,
)
from ringfence_kafka.config.settings import Settings

SETTINGS: Final = (TRANSACTION_LIMIT, SESSION_MIN, SESSION_MAX, METADATA_LIMIT)
"""Broker settings that :func:`limit_faults` compares."""


async def broker_settings(admin: AIOKafkaAdminClient, names: Collection[str]) -> dict[str, int]:
    """Return numeric settings of one broker by name; empty if this user may not see them."""
    brokers = (await admin.describe_cluster())["brokers"]
    if not brokers:
        return {}
    # The request must go to the broker that it names: each broker describes only itself.
    broker = ConfigResource(
        ConfigResourceType.BROKER, str(brokers[0]["node_id"]), configs=dict.fromkeys(names)
    )
    (response,) = await admin.describe_configs([broker])
    return {
        entry[0]: int(entry[1])
        for error_code, _message, _type, _name, entries in response.resources
        if error_code == 0
        for entry in entries
        if entry[1] is not None
    }


class _Need(NamedTuple):
    setting: str
    value: int
    user: str
    consequence: str

    def fault(self, limit: int) -> str | None:
        is_minimum = self.setting == SESSION_MIN
        if (limit <= self.value) if is_minimum else (limit >= self.value):
            return None
        bound = "at most" if is_minimum else "at least"
        return f"the brokers' {self.setting} is {limit}, and {self.user} need {bound} {self.value}: {self.consequence}; change it on all brokers"


def limit_faults(settings: Settings, brokers: Mapping[str, int]) -> list[str]:
    """Return a line for each broker setting that stops a part of this configuration.

    Settings of :data:`SETTINGS` that are absent in ``brokers`` are not compared.
    """
    found = (need.fault(brokers[need.setting]) for need in _needs(settings) if need.setting in brokers)
    return [fault for fault in found if fault]


def _needs(settings: Settings) -> Iterator[_Need]:
    if settings.addresses:
        yield _Need(TRANSACTION_LIMIT, TRANSACTION_TIMEOUT_MS, "lanes", "no lane opens")
        timeout_ms = settings.app.session_timeout * 1000
        for name in (SESSION_MIN, SESSION_MAX):
            yield _Need(name, timeout_ms, "workers", "no worker joins its group")
    if settings.bridges or settings.cluster_connections:
        for name in (SESSION_MIN, SESSION_MAX):
            yield _Need(name, BRIDGE_SESSION_TIMEOUT_MS, "bridges", "no bridge joins its group")
        consequence = "bridges cannot commit their offsets and forward nothing"
        yield _Need(METADATA_LIMIT, OFFSET_METADATA_BYTES, "bridges", consequence)
