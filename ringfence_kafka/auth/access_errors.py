"""Error texts for brokers that refuse access or do not answer, shared by all clients. Pure, except that it reads the client's certificate."""

from ringfence_kafka.auth import certificate_validity
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import BrokerUnavailableError


def nobody(
    kafka: KafkaSettings, reason: str = "", key: str = "kafka.bootstrap_servers"
) -> BrokerUnavailableError:
    """Return the error if no broker answers. ``reason``: text in brackets, after a space; ``key``: the key in the file."""
    return BrokerUnavailableError(
        f"no broker answers at {key} = {kafka.bootstrap_servers!r}{reason}: start it ('ringfence broker' for a first trial), or fix the address"
    )


def unresolved(kafka: KafkaSettings, host: str) -> BrokerUnavailableError:
    """Return the error for a host name that this machine cannot resolve, while no other server answers."""
    return BrokerUnavailableError(
        f"cannot resolve host {host!r} of the bootstrap servers {kafka.bootstrap_servers!r}: fix the name, or this machine's name service"
    )


def refused(server: str, reason: str) -> BrokerUnavailableError:
    """Return the error for a server (``host:port``) that refused access. ``reason``: one of the sentences below."""
    return BrokerUnavailableError(f"the broker at {server} denies access: {reason}")


def password(kafka: KafkaSettings) -> str:
    """Explain that the login failed."""
    if kafka.uses_tokens:
        return (
            f"it refuses the token ({kafka.sasl_mechanism}) of {kafka.sasl_oauth_callback or kafka.sasl_oauth_token_url}: see that its "
            "issuer, audience and scope are those that the listener asks for, and that both clocks are right"
        )
    return (
        f"it refuses the password of kafka.sasl_username = {kafka.sasl_username!r} "
        f"({kafka.sasl_mechanism}): fix the name, or the password in {kafka.secret_place('sasl_password')}"
    )


def mechanism(kafka: KafkaSettings) -> str:
    """Explain that the listener does not support this login mechanism."""
    return (
        f"it does not accept kafka.sasl_mechanism = {kafka.sasl_mechanism!r}: set one that this listener "
        "has enabled"
    )


def authority(kafka: KafkaSettings, why: str, code: int = 0) -> str:
    """Explain that the broker's certificate is not trusted. ``why`` and ``code`` are OpenSSL's."""
    if code == certificate_validity.EXPIRED:
        return "its certificate has expired: have that of the broker renewed; if it was, see that this machine's clock is right"
    if code == certificate_validity.NOT_YET:
        return (
            "its certificate is not valid yet: see that the broker's clock and that of this machine are right"
        )
    if code in certificate_validity.OTHER_NAME:
        return (
            f"its certificate is for another name ({why.strip().rstrip('.')}): name the broker in kafka.bootstrap_servers, and in its own "
            "advertised.listeners, as its certificate does"
        )
    known = repr(kafka.ssl_cafile) if kafka.ssl_cafile else "'' (the system's)"
    return (
        f"its certificate is not trusted ({why}): set kafka.ssl_cafile, now {known}, "
        "to the authority that signed it"
    )


def certificate(kafka: KafkaSettings, alert: str) -> str:
    """Explain that the broker does not trust the client's certificate, or misses it. ``alert``: name of the TLS alert."""
    if fault := certificate_validity.fault(kafka.ssl_certfile):
        return f"it refuses kafka.ssl_certfile = {kafka.ssl_certfile!r}, which {fault} ({alert}): have it renewed"
    refusal = (
        f"refuses kafka.ssl_certfile = {kafka.ssl_certfile!r}"
        if kafka.ssl_certfile
        else "asks for a certificate"
    )
    return (
        f"it {refusal} ({alert}): "
        "set kafka.ssl_certfile and kafka.ssl_keyfile to what an authority that it trusts has signed"
    )


def readable(kafka: KafkaSettings) -> list[str]:
    """Return a warning if the connection sends a secret that anybody on the network path can read."""
    if kafka.uses_ssl or kafka.sasl_mechanism not in {"PLAIN", "OAUTHBEARER"}:
        return []
    secret = "token" if kafka.uses_tokens else "password"
    note = (
        f"kafka.security_protocol = 'SASL_PLAINTEXT' with {kafka.sasl_mechanism} sends the {secret} so that "
        "anybody on the network can read it: set SASL_SSL, or a mechanism of SCRAM"
    )
    return [note]


def no_login(kafka: KafkaSettings) -> str:
    """Explain that the listener supports no login at all."""
    return (
        f"it accepts no login on that port: kafka.security_protocol = {kafka.security_protocol!r} is for "
        f"another listener; set {'SSL' if kafka.uses_ssl else 'PLAINTEXT'!r} without sasl_mechanism, or "
        "name the port of the other"
    )


def protocol(kafka: KafkaSettings, tls: bool | None = None) -> str:
    """Explain a connection that ended at once. ``tls``: whether the port uses TLS, None = not known."""
    if tls is not False and certificate_validity.fault(kafka.ssl_certfile):
        return certificate(kafka, "it closes the connection")
    now = f"kafka.security_protocol = {kafka.security_protocol!r}"
    login = "'SASL_SSL'" if kafka.uses_sasl else "'SSL', or 'SASL_SSL' with a login"
    if tls and not kafka.uses_ssl:
        return f"that port speaks TLS, and {now} does not: set {login}"
    if tls is False and kafka.uses_ssl:
        plain = "'SASL_PLAINTEXT'" if kafka.uses_sasl else "'PLAINTEXT', or 'SASL_PLAINTEXT' with a login"
        return f"that port does not speak TLS, and {now} does: name the port of a listener that does, or set {plain}"
    if tls is False and not kafka.uses_sasl:
        return f"it closes the connection: it may want a login, and {now} has none: set 'SASL_PLAINTEXT' and sasl_mechanism"
    return f"it closes the connection: check that the port speaks {now}"
