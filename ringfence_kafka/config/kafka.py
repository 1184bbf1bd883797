"""Table ``[kafka]``, and other tables with access to a cluster."""

import os
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import Field, PrivateAttr, field_validator, model_validator

from ringfence_kafka.config import properties
from ringfence_kafka.config.section import Section

_LOGIN: Final = ("sasl_username", "sasl_password_env")
_CREDENTIALS: Final = ("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret_env")
_OAUTH: Final = ("sasl_oauth_callback", *_CREDENTIALS, "sasl_oauth_scope")
_FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_VARIABLES: Final = ("sasl_password_env", "sasl_oauth_client_secret_env", "ssl_key_password_env")
_OAUTHBEARER: Final = "OAUTHBEARER"
_HOST: Final = re.compile(r"[^][:/@?#\s]+")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")

NOT_SET: Final = (
    "that variable is not set: export it, or with systemd write NAME=value into the unit's EnvironmentFile"
)
"""Error text for a missing environment variable with a secret. systemd ignores lines with `export`."""


class KafkaSettings(Section):
    """Access to a cluster. Passwords are only in the environment."""

    bootstrap_servers: str = Field(default="127.0.0.1:9092", min_length=1)
    """Brokers to ask first, as ``host:port``, separated by commas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of the brokers' listener."""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = ""
    """Mechanism of the login, for the SASL protocols."""
    sasl_username: str = ""
    """User of the login."""
    sasl_password_env: str = ""
    """Environment variable that holds the password of the login."""
    sasl_oauth_callback: str = ""
    """Function ``pkg.module:function`` that returns a token, or a token and its expiry in seconds since the epoch."""
    sasl_oauth_token_url: str = ""
    """URL where an identity provider issues tokens for client credentials."""
    sasl_oauth_client_id: str = ""
    """Client ID for the identity provider."""
    sasl_oauth_client_secret_env: str = ""
    """Environment variable that holds the client secret for the identity provider."""
    sasl_oauth_scope: str = ""
    """Scope of the tokens; empty = the identity provider's default."""
    ssl_cafile: str = ""
    """PEM file of the authority that signed the brokers' certificates; empty = the system's."""
    ssl_certfile: str = ""
    """PEM file of the client's certificate, for brokers that ask for one."""
    ssl_keyfile: str = ""
    """PEM file of that certificate's private key."""
    ssl_key_password_env: str = ""
    """Environment variable that holds the password of an encrypted private key."""
    command_config: str = ""
    """File of Java properties, as Kafka's own tools take it, for everything that these keys do not cover."""
    properties: dict[str, str] = Field(
        default_factory=dict,
        json_schema_extra={"additionalProperties": {"type": ["string", "number", "boolean"]}},
    )
    """Further properties, by Kafka's own names, for all clients that know them."""
    _application: str = PrivateAttr(default="")
    _instance: str = PrivateAttr(default="")

    @model_validator(mode="before")
    @classmethod
    def _properties_are_keys(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        file, own = data.get("command_config"), data.get("properties", {})
        if not (file or own) or not (isinstance(own, dict) and isinstance(file, str | None)):
            return data
        given = properties.translate(own, "properties")
        for key, value in given.keys.items():
            if key in data and data[key] != value:
                raise ValueError(
                    f"properties: it says {key} = {value!r}, and the table {data[key]!r}: remove one"
                )
        theirs = properties.read_properties(file) if file else properties.NOTHING
        return {**theirs.keys, **given.keys, **data, "properties": {**theirs.passed, **given.passed}}

    @field_validator("bootstrap_servers")
    @classmethod
    def _host_and_port(cls, value: str) -> str:
        for server in map(str.strip, value.split(",")):
            host, _, port = server.rpartition(":")
            if not _is_host(host) or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
                raise ValueError(
                    f"{server!r} is not host:port or [IPv6]:port; write for example 127.0.0.1:9092 or [::1]:9092"
                )
        return value

    @property
    def client_id(self) -> str:
        """Client ID of this application and instance at brokers: in logs, quotas and metrics."""
        return "-".join(filter(None, (self._application or "ringfence", self._instance)))

    def client_id_of(self, instance: str) -> str:
        """Return the client ID of an instance."""
        return self.named(self._application, instance).client_id

    def instance_of(self, client_id: str) -> str:
        """Return the instance in a client ID of this application."""
        return client_id.removeprefix(f"{self._application or 'ringfence'}-")

    def named(self, application: str, instance: str) -> Self:
        """Return a copy for clients of this application and instance."""
        made = self.model_copy()
        made.name_clients(application, instance)
        return made

    def name_clients(self, application: str, instance: str) -> None:
        """Set the names of clients. The settings that contain this table call it once."""
        self._application, self._instance = application, instance

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        return self.security_protocol.startswith("SASL_")

    @property
    def uses_tokens(self) -> bool:
        """Whether clients log in with a token."""
        return self.uses_sasl and self.sasl_mechanism == "OAUTHBEARER"

    @property
    def uses_ssl(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.endswith("SSL")

    @model_validator(mode="after")
    def _security_fits_together(self) -> Self:
        for fault in _access_faults(self, self._secrets()):
            raise ValueError(fault)
        return self

    def secret(self, key: str) -> str:
        """Return ``sasl_password``, ``sasl_oauth_client_secret`` or ``ssl_key_password``; empty = none. It is read at each call, and not stored."""
        name = getattr(self, f"{key}_env")
        return os.environ[name] if name else self._secrets().get(key, "")

    def secret_place(self, key: str) -> str:
        """Return the place of a secret, for error texts."""
        name = getattr(self, f"{key}_env")
        return f"${name}" if name else self.command_config

    def _secrets(self) -> Mapping[str, str]:
        return properties.read_properties(self.command_config).secrets if self.command_config else {}


def _is_host(text: str) -> bool:
    """Return whether a text is a name, an IPv4 address, or an IPv6 address in brackets."""
    if not (text.startswith("[") and text.endswith("]")):
        return _HOST.fullmatch(text) is not None
    try:
        IPv6Address(text[1:-1])
    except ValueError:
        return False
    return True


def _access_faults(access: KafkaSettings, secrets: Mapping[str, str]) -> Iterator[str]:
    """Yield the problems. ``secrets``: secrets from a file, by key."""
    keys = ("security_protocol", "sasl_mechanism", *_LOGIN, *_OAUTH, *_FILES, "ssl_key_password_env")
    given: dict[str, str] = {key: value for key in keys if (value := getattr(access, key))}
    protocol = f"security_protocol = {given['security_protocol']!r}"
    yield from _without_effect(access, given, protocol)
    if access.uses_sasl:
        yield from _login_faults(given, secrets, protocol)
    if ("ssl_certfile" in given) != ("ssl_keyfile" in given):
        there, lacking = sorted(("ssl_certfile", "ssl_keyfile"), key=lambda key: key not in given)
        yield f"{there} = {given[there]!r} needs {lacking}: set both or neither"
    if "ssl_key_password_env" in given and "ssl_keyfile" not in given:
        yield f"{_shown('ssl_key_password_env', given)} has no effect without ssl_keyfile: remove it"
    for key in _FILES:
        if key in given and (fault := file_fault(given[key])):
            yield f"{key} = {given[key]!r}: {fault}"
    for key in _VARIABLES:
        if key in given and not os.environ.get(given[key]):
            yield f"{_shown(key, given)}: {NOT_SET}"


def file_fault(path: str) -> str:
    """Return why a path is not a usable PEM file; empty = it may be. Devices and pipes are refused, because clients open the file repeatedly."""
    if Path(path).is_file():
        return ""
    return f"{'not a regular' if Path(path).exists() else 'no such'} file: name a PEM file"


def _without_effect(access: KafkaSettings, given: Mapping[str, str], protocol: str) -> Iterator[str]:
    sasl = ("sasl_mechanism", *_LOGIN, *_OAUTH)
    for keys, used in ((sasl, access.uses_sasl), ((*_FILES, "ssl_key_password_env"), access.uses_ssl)):
        extra = [_shown(key, given) for key in keys if key in given]
        if extra and not used:
            yield f"{', '.join(extra)} has no effect with {protocol}: remove it, or set the protocol"


def _login_faults(given: Mapping[str, str], secrets: Mapping[str, str], protocol: str) -> Iterator[str]:
    mechanism = given.get("sasl_mechanism", "")
    if mechanism == _OAUTHBEARER:
        yield from _token_faults(given, secrets)
        return
    missing = [key for key in ("sasl_mechanism", *_LOGIN) if key not in given and not _told(key, secrets)]
    if missing:
        yield f"{protocol} needs {', '.join(missing)}: add them, or choose another protocol"
    if extra := [_shown(key, given) for key in _OAUTH if key in given]:
        yield f"{', '.join(extra)} has no effect with sasl_mechanism = {mechanism!r}: remove it, or set 'OAUTHBEARER'"


def _token_faults(given: Mapping[str, str], secrets: Mapping[str, str]) -> Iterator[str]:
    mechanism = f"sasl_mechanism = {_OAUTHBEARER!r}"
    if extra := [_shown(key, given) for key in _LOGIN if key in given]:
        yield f"{', '.join(extra)} has no effect with {mechanism}: remove it"
    credentials = [key for key in (*_CREDENTIALS, "sasl_oauth_scope") if key in given]
    if callback := given.get("sasl_oauth_callback"):
        if credentials:
            yield f"sasl_oauth_callback cannot be combined with {', '.join(credentials)}: keep one way to a token"
        if not _FUNCTION.fullmatch(callback):
            yield f"sasl_oauth_callback = {callback!r}: write pkg.module:function"
        return
    missing = [key for key in _CREDENTIALS if key not in given and not _told(key, secrets)]
    if missing:
        yield f"{mechanism} needs sasl_oauth_callback, or {', '.join(_CREDENTIALS)}: {', '.join(missing)} missing"
    url = given.get("sasl_oauth_token_url", "")
    if url and not re.match(r"https?://[^/]", url):
        yield f"sasl_oauth_token_url = {url!r}: write an address that begins with https://"


def _told(key: str, secrets: Mapping[str, str]) -> bool:
    return key.removesuffix("_env") in secrets


def _shown(key: str, given: Mapping[str, str]) -> str:
    return f"{key} = {variable(given[key]) if key in _VARIABLES else repr(given[key])}"


def variable(name: str) -> str:
    """Return a variable's name for an error, unless it looks like a misplaced secret."""
    return repr(name) if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else "(hidden: may be the password itself)"
