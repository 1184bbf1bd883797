"""What is asked of a plan. Pure."""

from dataclasses import dataclass
from typing import Final

from ringfence_kafka.config.settings import AppSettings

_APP: Final = AppSettings()


@dataclass(frozen=True, slots=True)
class Demand:
    """A load, what is to be survived, and what there is to run it on."""

    rate: float
    """Messages/s, all producers together, in the busiest minutes."""
    size: float
    """Bytes of a message: key, value and headers."""
    ids: float
    """To be remembered, all lanes together."""
    outage_s: float = 0
    """How long no worker may run, or no consumer."""
    catch_up_s: float = 0
    """Within which workers are to be through with what has come meanwhile; 0 = as long as the outage was."""
    largest_group: float = 0
    """Its share of all messages: it is in one lane, whatever there are of them; 0 = all are small."""
    forwarded: float = 0
    """Share of messages that arrive in another partition than their home."""
    native: bool = True
    replicas: int = 3
    readers: int = 1
    """Consumer groups that read what is accepted."""
    brokers: int = 3
    broker_cores: float = 8
    broker_network: float = 1.25e9
    """Bytes/s, each way."""
    worker_memory: float = 2 * 2**30
    """Bytes that a worker's process may have."""
    buffer_bytes: float = _APP.buffer_bytes_max
    resident_ids: float = _APP.resident_ids_max
    session_s: float = _APP.session_timeout

    @property
    def peak_rate(self) -> float:
        """Messages/s while workers catch up."""
        if not self.outage_s:
            return self.rate
        return self.rate * (1 + self.outage_s / (self.catch_up_s or self.outage_s))

    @property
    def kept_s(self) -> float:
        """How long input and accepted messages must stay in Kafka."""
        return self.outage_s + (self.catch_up_s or self.outage_s)
