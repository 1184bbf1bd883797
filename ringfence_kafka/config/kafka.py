"""``[kafka]``, and every other table that says how to reach a cluster."""

import os
import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

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

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        for server in value.split(","):
            host, _, port = server.strip().rpartition(":")
            if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:  # noqa: PLR2004
                raise ValueError(f"{server.strip()!r} is not host:port; write for example 127.0.0.1:9092")
        return value

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
        if self.uses_sasl and not os.environ.get(self.sasl_password_env):
            raise ValueError(
                f"sasl_password_env = {_variable(self.sasl_password_env)}: that variable is not set: export it"
            )
        return self

    def sasl_password(self) -> str:
        """The password, read when it is needed and kept nowhere."""
        return os.environ[self.sasl_password_env]


def _variable(name: str) -> str:
    """The name of a variable for an error, unless it looks like a password that somebody put in its place."""
    return repr(name) if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else "(hidden: may be the password itself)"
