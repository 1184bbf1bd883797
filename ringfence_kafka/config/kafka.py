"""``[kafka]``, and every other table that says how to reach a cluster."""

import os
from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ringfence_kafka.config import properties
from ringfence_kafka.config.access_faults import access_faults
from ringfence_kafka.config.section import Section


class KafkaSettings(Section):
    """How to reach the cluster, and how to get in. The password itself stands in the environment only."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Comma-separated ``host:port``."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    sasl_username: str = ""
    sasl_password_env: str = ""
    """Name of the environment variable that holds the password."""
    sasl_oauth_callback: str = ""
    """``pkg.module:function`` that returns a token, or a token and when it expires (seconds since the epoch)."""
    sasl_oauth_token_url: str = ""
    """Where an identity provider gives tokens for client credentials."""
    sasl_oauth_client_id: str = ""
    sasl_oauth_client_secret_env: str = ""
    """Name of the environment variable that holds the secret."""
    sasl_oauth_scope: str = ""
    ssl_cafile: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty = the system's."""
    ssl_certfile: str = ""
    """PEM file of the client's certificate, where brokers ask for one."""
    ssl_keyfile: str = ""
    ssl_key_password_env: str = ""
    """Name of the environment variable that holds the password of an encrypted key."""
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
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
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
        """Whether clients log in."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tokens(self) -> bool:
        """Whether they log in with a token instead."""
        return self.uses_sasl and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def uses_ssl(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @model_validator(mode="after")
    def _security_fits_together(self) -> Self:
        for fault in access_faults(self, self._secrets()):
            raise ValueError(fault)
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

    def oauth_client_secret(self) -> str:
        """The same of an identity provider."""
        name = self.sasl_oauth_client_secret_env
        return os.environ[name] if name else self._secrets()["sasl_oauth_client_secret"]

    @property
    def oauth_secret_place(self) -> str:
        """Where that stands, for errors."""
        return (
            f"${self.sasl_oauth_client_secret_env}"
            if self.sasl_oauth_client_secret_env
            else self.command_config
        )

    def ssl_key_password(self) -> str | None:
        """The password of an encrypted key; None = there is none."""
        if self.ssl_key_password_env:
            return os.environ[self.ssl_key_password_env]
        return self._secrets().get("ssl_key_password")

    @property
    def key_password_place(self) -> str:
        """Where that stands, for errors."""
        return f"${self.ssl_key_password_env}" if self.ssl_key_password_env else self.command_config

    def _secrets(self) -> Mapping[str, str]:
        return properties.read(self.command_config).secrets if self.command_config else {}
