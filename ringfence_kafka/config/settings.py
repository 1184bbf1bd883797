"""Settings from the TOML file and the environment, validated before anything starts.

Unknown keys, wrong types, impossible combinations and keys of missing features are errors. They name the key, its value and the remedy.
Nothing is ignored.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from ringfence_kafka.config.addresses import (
    AddressDefaults,
    AddressSettings,
    claimed_topics,
    is_pattern,
    resolve_patterns,
)
from ringfence_kafka.config.bridges import BridgeSettings, ConnectionSettings
from ringfence_kafka.config.chains import upstream
from ringfence_kafka.config.durations import Days, Milliseconds, Seconds, WholeSeconds
from ringfence_kafka.config.kafka import NOT_SET, KafkaSettings, file_fault, variable
from ringfence_kafka.config.section import (
    HOST_PATTERN,
    INSTANCE_PATTERN,
    TOPIC_NAME_MAX,
    Section,
    TopicName,
    unit,
)
from ringfence_kafka.config.validation import (
    bridge_faults,
    topic_faults,
    window_faults,
)
from ringfence_kafka.errors import ConfigurationError

RUNS_FOLDER: Final = "reconcile"
"""Folder below ``app.data_dir``, beside the folders of workers."""

__all__ = [
    "AddressDefaults",
    "AddressSettings",
    "AppSettings",
    "KafkaSettings",
    "ReconcileSettings",
    "Settings",
]


class AppSettings(Section):
    """The application, and this worker."""

    id: TopicName = "ringfence"
    """Name of the application, its group and its topics; another one accepts all input again."""
    data_dir: str = Field(default="data", min_length=1)
    """Folder of the state, ``<data_dir>/<instance>/<address>-<p>``, relative to the working directory."""
    instance: Annotated[str, StringConstraints(pattern=INSTANCE_PATTERN, max_length=TOPIC_NAME_MAX)] = ""
    """Name of this worker and of its folder; empty = host name and web port."""
    static_membership: bool = False
    """Whether ``instance`` is the worker's group instance ID: it keeps its lanes over a short restart."""
    session_timeout: WholeSeconds = Field(default=10, ge=6, le=90)
    """Silence after which the group assigns a worker's lanes to others; brokers have limits of their own."""
    web_host: str = Field(default="127.0.0.1", min_length=1)
    """Network address where the web server listens."""
    web_name: Annotated[str, StringConstraints(pattern=HOST_PATTERN, max_length=253)] = ""
    """Advertised host of the web server; empty = ``web_host``, or the machine's name."""
    web_port: int = Field(default=6066, ge=0, le=65535)
    """Port of the web server; 0 = no web server."""
    web_token_env: str = ""
    """Environment variable that holds the token for the pages; empty = pages need none."""
    web_tls_certfile: str = ""
    """PEM file of the certificate with which pages are served over TLS."""
    web_tls_keyfile: str = ""
    """PEM file of that certificate's private key."""
    web_tls_cafile: str = ""
    """PEM file of the authority that signed it, for verbs that ask consumers; empty = the system's."""
    page_values: bool = False
    """Whether the worker's page shows the values of dead letters, to all who may see the page."""
    resident_ids_max: int = Field(default=10_000_000, ge=0, json_schema_extra=unit("IDs"))
    """Largest ring with its index in memory; up to 1,000,000 with ``id_max_age`` or without native core."""
    buffer_bytes_max: int = Field(default=128 * 2**20, ge=16 * 2**20, json_schema_extra=unit("bytes"))
    """Limit of fetched, unfinished messages in all lanes of a worker together."""
    latency_target_ms: Milliseconds = Field(default=20, ge=1, le=5_000)
    """Median time to readers at low traffic; a larger one takes less CPU."""

    @field_validator("instance")
    @classmethod
    def _not_the_runs(cls, value: str) -> str:
        if value == RUNS_FOLDER:
            raise ValueError("that folder of data_dir belongs to the reconciliation run: choose another name")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        files = ("web_tls_certfile", "web_tls_keyfile", "web_tls_cafile")
        given = {file: value for file in files if (value := getattr(self, file))}
        if ("web_tls_certfile" in given) != ("web_tls_keyfile" in given):
            there, lacking = sorted(files[:2], key=lambda file: file not in given)
            raise ValueError(f"{there} = {given[there]!r} needs {lacking}: set both or neither")
        for key, value in given.items():
            if fault := file_fault(value):
                raise ValueError(f"{key} = {value!r}: {fault}")
        if self.web_token_env and not os.environ.get(self.web_token_env):
            raise ValueError(f"web_token_env = {variable(self.web_token_env)}: {NOT_SET}")
        if self.static_membership and not self.instance:
            raise ValueError(
                "static_membership = true needs app.instance, a name of this worker alone that it keeps "
                "over restarts. Set it, such as the pod's name of a StatefulSet (RINGFENCE_APP__INSTANCE "
                "from metadata.name), or leave static_membership out"
            )
        return self

    @property
    def instance_name(self) -> str:
        """Effective folder name. It is the same after a restart, so that a worker finds its RocksDB again."""
        return self.instance or f"{socket.gethostname()}-{self.web_port}"


class ReconcileSettings(Section):
    """The reconciliation run."""

    state_dir: str = ""
    """Folder or URI, for all of Spark's executors, of results and accepted IDs; empty = ``reconcile`` below ``app.data_dir``."""
    report_url: str = ""
    """Address at which browsers find ``<state_dir>/results``, for links to the report; empty = pages name its path."""
    keep_days: Days = Field(default=7, ge=1)
    """Time for which accepted IDs are kept; longer while a ring may still know them."""
    ring_confidence: float = Field(default=0.999, gt=0, le=1)
    """Share of the duplicates of ``keep_days`` that the recommended ``id_cache_size`` would catch, before its headroom."""
    overrun_max: float = Field(default=0.001, ge=0, le=1)
    """Share of an address's duplicates that may be accepted again (OVERRUN) before a run has anomalies; 1 = no limit."""
    master: str = Field(default="local[*]", min_length=1)
    """Master of Spark, such as ``local[*]`` or ``spark://host:7077``."""
    executor_timeout: Seconds = Field(default=120.0, gt=0, allow_inf_nan=False)
    """Time that tasks wait on a cluster without any executor before the run ends with exit code 2."""

    @field_validator("report_url")
    @classmethod
    def _for_browsers(cls, url: str) -> str:
        if url and not url.startswith(("https://", "http://")):
            raise ValueError("write an address that begins with https:// or http://")
        return url


class Settings(Section):
    """The whole file. Immutable: a worker runs from one state of the configuration."""

    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    """Access to the cluster."""
    app: AppSettings = Field(default_factory=AppSettings)
    """The application, and this worker."""
    address_defaults: AddressDefaults = Field(default_factory=AddressDefaults)
    """Defaults of all addresses."""
    addresses: tuple[AddressSettings, ...] = ()
    """Addresses, and patterns that set defaults for those whose names match."""
    bridges: tuple[BridgeSettings, ...] = ()
    """Bridges, which ``ringfence bridge`` runs."""
    cluster_connections: tuple[ConnectionSettings, ...] = ()
    """Cluster connections, whose bridges ``ringfence bridge`` runs."""
    reconcile: ReconcileSettings = Field(default_factory=ReconcileSettings)
    """The reconciliation run."""
    _patterns: tuple[dict[str, Any], ...] = PrivateAttr(default=())
    """Entries of ``[[addresses]]`` that only set defaults: they hold for addresses of other clusters too."""

    @model_validator(mode="wrap")
    @classmethod
    def _keeps_patterns(cls, data: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        settings = handler(data)
        if isinstance(data, dict):
            settings._patterns = tuple(filter(is_pattern, data.get("addresses", ())))
        return settings

    @model_validator(mode="after")
    def _clients_have_names(self) -> Self:
        """Set the client names that brokers show in logs, quotas and metrics."""
        bridged = [
            kafka for bridge in self.bridges for kafka in (bridge.source, bridge.target) if kafka is not None
        ]
        members = [member for connection in self.cluster_connections for member in connection.members]
        for kafka in (self.kafka, *bridged, *members):
            kafka.name_clients(self.app.id, self.app.instance_name)
        return self

    @model_validator(mode="before")
    @classmethod
    def _defaults_reach_addresses(cls, data: object) -> object:
        """Merge ``[address_defaults]`` and matching patterns into each address before validation."""
        if not isinstance(data, dict):
            return data
        defaults, addresses = data.get("address_defaults", {}), data.get("addresses", ())
        if not isinstance(addresses, list | tuple):
            return data
        try:
            AddressDefaults.model_validate(defaults)
        except ValidationError:
            defaults = {}  # reported once, at address_defaults, and not again for each address
        return {**data, "addresses": resolve_patterns(defaults, addresses)}

    @model_validator(mode="after")
    def _topics_are_distinct(self) -> Self:
        for fault in topic_faults(self.addresses, self.app.id):
            raise ValueError(fault)
        return self

    def require_own_input(
        self, address: AddressSettings, what: str, advice: Callable[[str], str] = "send to {}".format
    ) -> None:
        """Refuse writes to the input of a chained address, which only workers may write.

        Args:
            address: The address.
            what: Start of the message.
            advice: Returns the end of the message for the first address of the chain.

        Raises:
            ConfigurationError: another address feeds it.
        """
        if fed_by := upstream(address.name, self.addresses):
            raise ConfigurationError(
                f"{what}: the input topic of {address.name} is {address.input_topic}, the accepted topic of "
                f"{fed_by[0]}, and only workers write there: {advice(fed_by[-1])}"
            )

    @model_validator(mode="after")
    def _bridges_lead_somewhere(self) -> Self:
        addressed = {address.name: address for address in self.addresses}
        topics = dict(claimed_topics(self.addresses, self.app.id))
        for fault in bridge_faults(self.bridges, self.cluster_connections, addressed, topics, self.kafka):
            raise ValueError(fault)
        targets = {f"bridges: {bridge.name!r}": [bridge.target_address] for bridge in self.bridges}
        for connection in self.cluster_connections:
            names = connection.names(addressed)
            targets[f"cluster_connections: {connection.name!r}"] = [
                *names,
                *map(connection.target_address, names),
            ]
        for place, names in targets.items():
            for name in names:
                try:
                    self.target(name)
                except ValidationError as error:
                    said = error.errors()[0]["msg"].removeprefix("Value error, ")
                    raise ValueError(
                        f"{place}: by [address_defaults] and patterns its address {name!r} has {said}"
                    ) from error
        for fault in window_faults(self.bridges, self.cluster_connections, addressed, self._size):
            raise ValueError(fault)
        return self

    def with_web_port(self, port: int) -> Self:
        """Return a copy with another port. The port is part of the instance name if no name is set."""
        app = self.app.model_copy(update={"web_port": port})
        return self.model_copy(update={"app": app, "kafka": self.kafka.named(app.id, app.instance_name)})

    def target(self, name: str) -> AddressSettings:
        """Return an address of another cluster: the one with this name here, or else one from patterns and defaults."""
        found = self.address(name)
        if found is not None:
            return found
        defaults = {
            key: getattr(self.address_defaults, key) for key in self.address_defaults.model_fields_set
        }
        (resolved,) = resolve_patterns(defaults, [*self._patterns, {"name": name}])
        return AddressSettings.model_validate(resolved)

    def _size(self, name: str) -> int | None:
        """Return ``id_cache_size`` of a configured address, or of another one from a pattern or ``[address_defaults]``."""
        found = self.target(name).id_cache_size
        if self.address(name) is not None or "id_cache_size" in self.address_defaults.model_fields_set:
            return found
        (matched,) = resolve_patterns({}, [*self._patterns, {"name": name}])
        return found if "id_cache_size" in matched else None

    def transaction_targets(self, address: AddressSettings) -> tuple[AddressSettings, ...]:
        """Return the other addresses that parts of its transactions may go to."""
        return tuple(item for item in self.addresses if item.name in address.transaction_addresses)

    def address(self, name: str) -> AddressSettings | None:
        """Return the address with this name, or None."""
        return next((address for address in self.addresses if address.name == name), None)

    def configured(self, name: str) -> AddressSettings:
        """Return the address with this name.

        Raises:
            ConfigurationError: it does not exist; the text lists the known ones.
        """
        found = self.address(name)
        if found is None:
            known = (
                ", ".join(address.name for address in self.addresses) or "none; add an [[addresses]] entry"
            )
            raise ConfigurationError(f"unknown address {name!r}: the configuration has {known}")
        return found

    @property
    def runs_dir(self) -> str:
        """Folder or URI where reconciliation runs keep their history."""
        return self.reconcile.state_dir or str(Path(self.app.data_dir) / RUNS_FOLDER)

    @property
    def state_dir(self) -> Path:
        """Folder of this worker's RocksDB stores."""
        return Path(self.app.data_dir) / self.app.instance_name
