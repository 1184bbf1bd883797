"""A broker with six secured listeners, and the configurations that they accept; tests keep the plaintext listener."""

import dataclasses
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from app.embedded import ports
from app.embedded.broker import EmbeddedBroker
from app.embedded.broker_process import HOST
from app.embedded.server_files import Listener, listener_properties
from tests.support.brokers import acls, unsecured_tokens
from tests.support.brokers.acls import Right
from tests.support.brokers.token_issuer import AUDIENCE, ISSUER, Issuer
from tests.support.kafka import WAIT_S
from tests.support.worker import toml

USER: Final = "ringfence-user"
PASSWORD: Final = "correct horse, battery; staple"
WRONG_PASSWORD: Final = "not-the-horse-at-all"
PASSWORD_VARIABLE: Final = "RINGFENCE_KAFKA_PASSWORD"
"""Environment variable with the prefix of the settings: the most obvious name must work."""

LONG_AGO: Final = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
SCRAM_ITERATIONS: Final = 4096

_PROTOCOLS: Final = {
    "TLS": "SSL",
    "PLAIN": "SASL_SSL",
    "SCRAM": "SASL_PLAINTEXT",
    "TOKEN": "SASL_PLAINTEXT",
    "ISSUED": "SASL_PLAINTEXT",
    "BRIEF": "SASL_PLAINTEXT",
}
SESSION_MS: Final = 3_000
"""Session of the last listener in ms: then the broker closes the connection of a client that cannot log in again on it (KIP-368)."""


@dataclasses.dataclass(frozen=True)
class Access:
    """One way to access the broker, as a person would configure it."""

    bootstrap: str
    options: Mapping[str, str]
    """Keys of ``[kafka]`` beside ``bootstrap_servers``."""
    environment: Mapping[str, str]

    def but(self, *without: str, **options: str) -> "Access":
        kept = {key: value for key, value in self.options.items() if key not in without}
        return dataclasses.replace(self, options=kept | options)

    def with_password(self, password: str) -> "Access":
        return dataclasses.replace(self, environment={**self.environment, PASSWORD_VARIABLE: password})

    def with_user(self, user: str) -> "Access":
        return self.but(sasl_username=user)

    @property
    def section(self) -> dict[str, str]:
        return {"bootstrap_servers": self.bootstrap, **self.options}

    def configure(self, folder: Path, app_id: str, addresses: Iterable[Mapping[str, Any]]) -> Path:
        config = folder / "ringfence.toml"
        config.write_text(toml(self.section, app_id, folder, addresses))
        return config


class Certificates:
    """An authority, and PEM files that it signed, in the form that brokers and clients need."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.authority = self._write("ca.pem", self._authority.cert_pem.bytes())
        server = self._authority.issue_cert(HOST)
        chain = b"".join(pem.bytes() for pem in server.cert_chain_pems)
        # Kafka reads private keys as PKCS#8 only.
        key = load_pem_private_key(server.private_key_pem.bytes(), password=None)
        pkcs8 = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.server = self._write("server.pem", pkcs8 + chain)
        client = self._authority.issue_cert("client.test", common_name=USER)
        self.client = self._write("client.pem", b"".join(pem.bytes() for pem in client.cert_chain_pems))
        self.client_key = self._write("client.key", client.private_key_pem.bytes())

    def expired(self) -> dict[str, str]:
        """Return a client's certificate that expired at :data:`LONG_AGO`, and its key, by their keys of ``[kafka]``."""
        begun = LONG_AGO - timedelta(days=1)
        issued = self._authority.issue_cert(
            "client.test", common_name=USER, not_before=begun, not_after=LONG_AGO
        )
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        key = self._write("client-expired.key", issued.private_key_pem.bytes())
        return {"ssl_certfile": str(self._write("client-expired.pem", chain)), "ssl_keyfile": str(key)}

    def stranger(self) -> Path:
        return self._write("stranger.pem", trustme.CA().cert_pem.bytes())

    def locked_key(self) -> Path:
        key = load_pem_private_key(self.client_key.read_bytes(), password=None)
        locked = BestAvailableEncryption(PASSWORD.encode())
        return self._write("locked.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))

    def _write(self, name: str, content: bytes) -> Path:
        path = self._folder / name
        path.write_bytes(content)
        return path


class SecuredBroker:
    """A broker with six listeners. :data:`USER` may do everything, others what they are granted."""

    def __init__(self, folder: Path) -> None:
        self.certificates = Certificates(folder)
        self.issuer = Issuer(folder, USER, PASSWORD)
        plain, controller, *rest = (ports.choose(HOST) for _ in range(2 + len(_PROTOCOLS)))
        self._ports = dict(zip(_PROTOCOLS, rest, strict=True))
        self.broker = EmbeddedBroker(folder / "broker", plain, properties=self._properties(plain, controller))

    def start(self) -> None:
        # Kafka fetches keys only from URLs that its command line allows.
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.issuer.keys.as_uri()}"
        with patch.dict(os.environ, {"JAVA_TOOL_OPTIONS": allowed}):
            self.broker.start()
        self.add_user(USER)

    def stop(self) -> None:
        self.broker.stop()
        self.issuer.close()

    @property
    def plaintext(self) -> str:
        return self.broker.bootstrap_servers

    @property
    def tls(self) -> Access:
        files = {
            "ssl_cafile": str(self.certificates.authority),
            "ssl_certfile": str(self.certificates.client),
            "ssl_keyfile": str(self.certificates.client_key),
        }
        return Access(self._address("TLS"), {"security_protocol": "SSL", **files}, {})

    @property
    def expired(self) -> Access:
        return self.tls.but(**self.certificates.expired())

    @property
    def locked(self) -> Access:
        files = {
            "ssl_keyfile": str(self.certificates.locked_key()),
            "ssl_key_password_env": PASSWORD_VARIABLE,
        }
        return dataclasses.replace(self.tls.but(**files), environment={PASSWORD_VARIABLE: PASSWORD})

    @property
    def token(self) -> Access:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_callback": "tests.support.brokers.unsecured_tokens:token",
        }
        return Access(self._address("TOKEN"), options, {unsecured_tokens.SUBJECT_VARIABLE: USER})

    @property
    def issued(self) -> Access:
        options = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_url": self.issuer.url,
            "sasl_oauth_client_id": USER,
            "sasl_oauth_client_secret_env": PASSWORD_VARIABLE,
        }
        return Access(self._address("ISSUED"), options, {PASSWORD_VARIABLE: PASSWORD})

    @property
    def plain(self) -> Access:
        return self._sasl("PLAIN", "SASL_SSL", "PLAIN").but(ssl_cafile=str(self.certificates.authority))

    @property
    def scram(self) -> Access:
        return self._sasl("SCRAM", "SASL_PLAINTEXT", "SCRAM-SHA-512")

    @property
    def brief(self) -> Access:
        """The SCRAM access, for :data:`SESSION_MS` at a time."""
        return dataclasses.replace(self.scram, bootstrap=self._address("BRIEF"))

    def add_user(self, name: str, rights: Iterable[Right] = (), password: str = PASSWORD) -> None:
        """Add a user who logs in by SCRAM. An existing user gets the password, and these rights as well."""
        admin = AdminClient({"bootstrap.servers": self.plaintext})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, SCRAM_ITERATIONS)
        added = UserScramCredentialUpsertion(name, credential, password.encode())
        for future in admin.alter_user_scram_credentials([added]).values():
            future.result(WAIT_S)
        acls.add(self.plaintext, name, *rights)

    def _address(self, listener: str) -> str:
        return f"{HOST}:{self._ports[listener]}"

    def _sasl(self, listener: str, protocol: str, mechanism: str) -> Access:
        options = {
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_username": USER,
            "sasl_password_env": PASSWORD_VARIABLE,
        }
        return Access(self._address(listener), options, {PASSWORD_VARIABLE: PASSWORD})

    def _properties(self, plain: int, controller: int) -> dict[str, str]:
        further = {name: Listener(self._ports[name], protocol) for name, protocol in _PROTOCOLS.items()}
        plain_login = "org.apache.kafka.common.security.plain.PlainLoginModule"
        scram_login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        bearer = "org.apache.kafka.common.security.oauthbearer"
        token_login = f'{bearer}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        issued = "listener.name.issued.oauthbearer.sasl"
        properties = (
            listener_properties(HOST, plain, controller, further)
            | {
                "listener.name.tls.ssl.client.auth": "required",
                "listener.name.tls.ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/",
                "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.plain.plain.sasl.jaas.config": f'{plain_login} required user_{USER}="{PASSWORD}";',
                "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{scram_login} required;",
                "listener.name.brief.sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.brief.scram-sha-512.sasl.jaas.config": f"{scram_login} required;",
                "listener.name.brief.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS),
                "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.name.token.oauthbearer.sasl.jaas.config": token_login,
                "listener.name.issued.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{issued}.jaas.config": token_login,
                f"{issued}.server.callback.handler.class": f"{bearer}.OAuthBearerValidatorCallbackHandler",
                f"{issued}.oauthbearer.jwks.endpoint.url": self.issuer.keys.as_uri(),
                f"{issued}.oauthbearer.expected.audience": AUDIENCE,
                f"{issued}.oauthbearer.expected.issuer": ISSUER,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": f"User:ANONYMOUS;User:{USER}",
                "log.retention.ms": "-1",  # some messages are of long ago, and this broker outlasts the checks of retention
            }
        )
        for listener in ("tls", "plain"):
            prefix = f"listener.name.{listener}.ssl"
            properties |= {
                f"{prefix}.keystore.type": "PEM",
                f"{prefix}.keystore.location": str(self.certificates.server),
                f"{prefix}.truststore.type": "PEM",
                f"{prefix}.truststore.location": str(self.certificates.authority),
            }
        return properties
