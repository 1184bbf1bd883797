"""``[kafka]``, and every other table that says how to reach a cluster."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ringfence_kafka.config import properties
from ringfence_kafka.config.section import Section


class KafkaSettings(Section):
    """How to reach the cluster, and how to get in. The password itself stands in the environment only."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Comma-separated ``host:port``."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""
    sasl_username: str = ""
    sasl_password_env: str = ""
    """Name of the environment variable that holds the password."""
    ssl_cafile: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty = the system's."""
    ssl_certfile: str = ""
    """PEM file of the client's certificate, where brokers ask for one."""
    ssl_keyfile: str = ""
    command_config: str = ""
    """A file of Java properties, as Kafka's own tools take it: it says what the keys here do not."""
    properties: dict[str, str] = Field(default_factory=dict)
    """More for all clients that know it, by Kafka's own names."""
    _application: str = PrivateAttr(default="")
    _instance: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _properties_are_keys(cls, data: object) -> object:
        """Keys that stand there under Kafka's own names."""
        if not isinstance(data, dict):
            return data
        file, own = data.get("command_config"), data.get("properties", {})
        if not (file or own) or not (isinstance(own, dict) and isinstance(file, str | None)):
            return data
        told = properties.translate(own, "properties")
        for key, value in told.keys.items():
            if key in data and data[key] != value:
                raise ValueError(
                    f"properties: it says {key} = {value!r}, and the table {data[key]!r}: remove one"
                )
        theirs = properties.read(file) if file else properties.NOTHING
        return {**theirs.keys, **told.keys, **data, "properties": {**theirs.passed, **told.passed}}

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        for server in value.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:  # noqa: PLR2004
                raise ValueError(f"{server.strip()!r} is not host:port; write for example 127.0.0.1:9092")
        return value

    @property
    def client_id(self) -> str:
        """By which brokers know this application and this instance: in logs, quotas and metrics."""
        return "-".join(filter(None, (self._application or "ringfence", self._instance)))

    def client_id_of(self, instance: str) -> str:
        """The same of one that has a name of its own."""
        return self.named(self._application, instance).client_id

    def instance_of(self, client_id: str) -> str:
        """The name of its own that a client of this application has."""
        return client_id.removeprefix(f"{self._application or 'ringfence'}-")

    def named(self, application: str, instance: str) -> Self:
        """The same, for clients of this application and instance."""
        made = self.model_copy()
        made.name_clients(application, instance)
        return made

    def name_clients(self, application: str, instance: str) -> None:
        """Called once, by the settings that it belongs to."""
        self._application, self._instance = application, instance

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in with a name and a password."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_ssl(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @model_validator(mode="after")
    def _security_fits_together(self) -> Self:
        sasl = {
            each: getattr(self, each) for each in ("sasl_mechanism", "sasl_username", "sasl_password_env")
        }
        ssl = {each: getattr(self, each) for each in ("ssl_cafile", "ssl_certfile", "ssl_keyfile")}
        protocol = f"security_protocol = {self.security_protocol!r}"
        if self.uses_sasl and not self.sasl_password_env and "sasl_password" in self._secrets():
            del sasl["sasl_password_env"]
        if self.uses_sasl and not all(sasl.values()):
            missing = ", ".join(key for key, value in sasl.items() if not value)
            raise ValueError(f"{protocol} needs {missing}: add them, or choose another protocol")
        for keys, used in ((sasl, self.uses_sasl), (ssl, self.uses_ssl)):
            extra = [
                f"{key} = {_variable(value) if key == 'sasl_password_env' else repr(value)}"
                for key, value in keys.items()
                if value
            ]
            if extra and not used:
                raise ValueError(
                    f"{', '.join(extra)} has no effect with {protocol}: remove it, or set the protocol"
                )
        if bool(self.ssl_certfile) != bool(self.ssl_keyfile):
            there, lacking = sorted(("ssl_certfile", "ssl_keyfile"), key=lambda each: not ssl[each])
            raise ValueError(f"{there} = {ssl[there]!r} needs {lacking}: set both or neither")
        for key, value in ssl.items():
            if value and not Path(value).is_file():
                raise ValueError(f"{key} = {value!r}: no such file: name a PEM file")
        if self.uses_sasl and self.sasl_password_env and not os.environ.get(self.sasl_password_env):
            raise ValueError(
                f"sasl_password_env = {_variable(self.sasl_password_env)}: that variable is not set: export it"
            )
        return self

    def sasl_password(self) -> str:
        """The password, read when it is needed and kept nowhere."""
        if self.sasl_password_env:
            return os.environ[self.sasl_password_env]
        return self._secrets()["sasl_password"]

    @property
    def password_place(self) -> str:
        """Where the password stands, for errors."""
        return f"${self.sasl_password_env}" if self.sasl_password_env else self.command_config

    def _secrets(self) -> Mapping[str, str]:
        return properties.read(self.command_config).secrets if self.command_config else {}


def _variable(name: str) -> str:
    """The name of a variable for an error, unless it looks like a password that somebody put in its place."""
    return repr(name) if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else "(hidden: may be the password itself)"
