"""The plan of a bridge from source topic ``s`` to address ``t``."""

from typing import Any

from agents.bridge.plan import Plan, plans
from ringfence_kafka.config.load import validate


def plan(address: dict[str, Any] | None = None, **keys: Any) -> Plan:
    """Return the plan of bridge ``b``, configured by ``keys``; ``address`` are settings of the target's address."""
    own = {"name": "b", "source_topic": "s", "target_address": "t", "target": {"bootstrap_servers": "x:1"}}
    addresses = {} if address is None else {"addresses": [{"name": "t", **address}]}
    (found,) = plans(validate({"bridges": [own | keys], **addresses}))
    return found
