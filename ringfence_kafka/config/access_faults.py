"""What does not fit together in a table that says how to get into a cluster: a line a fault, with the way out."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

_LOGIN: Final = ("sasl_username", "sasl_password_env")
_CREDENTIALS: Final = ("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret_env")
_OAUTH: Final = ("sasl_oauth_callback", *_CREDENTIALS, "sasl_oauth_scope")
_FILES: Final = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
_VARIABLES: Final = ("sasl_password_env", "sasl_oauth_client_secret_env", "ssl_key_password_env")
_OAUTHBEARER: Final = "OAUTHBEARER"
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Access(Protocol):
    """As :class:`ringfence_kafka.config.kafka.KafkaSettings` has it."""

    @property
    def uses_sasl(self) -> bool:
        """Whether clients log in."""
        ...

    @property
    def uses_ssl(self) -> bool:
        """Whether connections are encrypted."""
        ...


def access_faults(access: Access, secrets: Mapping[str, str]) -> Iterator[str]:
    """The faults; ``secrets`` are those of a file, by the key that they stand for."""
    keys = ("security_protocol", "sasl_mechanism", *_LOGIN, *_OAUTH, *_FILES, "ssl_key_password_env")
    given: dict[str, str] = {key: value for key in keys if (value := getattr(access, key))}
    protocol = f"security_protocol = {given['security_protocol']!r}"
    yield from _without_effect(access, given, protocol)
    if access.uses_sasl:
        yield from _login_faults(given, secrets, protocol)
    if ("ssl_certfile" in given) != ("ssl_keyfile" in given):
        there, lacking = sorted(("ssl_certfile", "ssl_keyfile"), key=lambda each: each not in given)
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
    """Why that can be no PEM file; empty = it may be one. A device or a pipe is not read: clients open it again and again."""
    if Path(path).is_file():
        return ""
    return f"{'not a regular' if Path(path).exists() else 'no such'} file: name a PEM file"


def _without_effect(access: Access, given: Mapping[str, str], protocol: str) -> Iterator[str]:
    sasl = ("sasl_mechanism", *_LOGIN, *_OAUTH)
    for keys, used in ((sasl, access.uses_sasl), ((*_FILES, "ssl_key_password_env"), access.uses_ssl)):
        extra = [_shown(key, given) for key in keys if key in given]
        if extra and not used:
            yield f"{', '.join(extra)} has no effect with {protocol}: remove it, or set the protocol"


def _login_faults(given: Mapping[str, str], secrets: Mapping[str, str], protocol: str) -> Iterator[str]:
    """Of what a login needs."""
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
    """A key and its value for an error."""
    return f"{key} = {variable(given[key]) if key in _VARIABLES else repr(given[key])}"


NOT_SET: Final = (
    "that variable is not set: export it, or with systemd write NAME=value into the unit's EnvironmentFile"
)
"""Of a variable that holds a secret. systemd leaves out lines with `export`."""


def variable(name: str) -> str:
    """The name of a variable for an error, unless it looks like a secret that somebody put in its place."""
    return repr(name) if re.fullmatch(r"[A-Z_][A-Z0-9_]*", name) else "(hidden: may be the password itself)"
