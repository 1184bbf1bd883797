import base64
import contextlib
import json
import logging
import re
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.errors import KafkaConnectionError, SaslAuthenticationFailed

from reconcile import job
from reconcile.audit import job as audit
from reconcile.audit.topic import Wanted
from reconcile.spark.source_options import kafka_options
from ringfence_kafka.aiokafka_patches.token_login import TokenLogin
from ringfence_kafka.auth import oauth
from ringfence_kafka.auth.client_options import Tokens, client_options
from ringfence_kafka.auth.oauth import TokenSource
from ringfence_kafka.auth.tls import confluent_options
from ringfence_kafka.config.load import validate
from ringfence_kafka.config.settings import KafkaSettings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError

BEARER = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
SECRET = "s&cret/of+mine"
CREDENTIALS = {
    "sasl_oauth_token_url": "https://x",
    "sasl_oauth_client_id": "ringfence:1",
    "sasl_oauth_client_secret_env": "OAUTH_SECRET",
}
CALLBACK = {"sasl_oauth_callback": "a:b"}
JWT = "eyJhbGciOiJub25lIn0.eyJleHAiOiA0MDAwMDAwMDAwfQ.e30"
"""With the claim "exp": 4000000000."""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OAUTH_SECRET", SECRET)


class _Provider(HTTPServer):
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.status = 200
        self.answer: object = {"access_token": "granted", "expires_in": 3600}
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"


class _Handler(BaseHTTPRequestHandler):
    server: _Provider

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.asked.append((login, dict(urllib.parse.parse_qsl(form))))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def provider() -> Iterator[_Provider]:
    with _Provider() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _kafka(**keys: Any) -> KafkaSettings:
    return validate({"kafka": BEARER | keys}).kafka


def _credentials(provider: _Provider, **keys: Any) -> KafkaSettings:
    return _kafka(**CREDENTIALS | {"sasl_oauth_token_url": provider.url} | keys)


def _function(name: str, text: str) -> KafkaSettings:
    """Return settings with a token function in a module of its own."""
    Path(f"{name}.py").write_text(text)
    return _kafka(sasl_oauth_callback=f"{name}:token")


@pytest.mark.parametrize(
    ("name", "text", "token"),
    [
        ("t_pair", "def token(): return 'abc', 4_000_000_000", "abc"),
        ("t_async", "async def token(): return 'abc', 4_000_000_000", "abc"),
        ("t_jwt", f"def token(): return {JWT!r}", JWT),
    ],
)
async def test_a_function(name: str, text: str, token: str) -> None:
    """A function, or a coroutine beside a loop that runs, returns the token with its end, which a JWT has in its claims, or without."""
    plain = TokenSource(_function("t_plain", "def token(): return 'abc'")).current()

    assert TokenSource(_function(name, text)).current() == (token, 4_000_000_000)
    assert plain.text == "abc"
    assert plain.expires == pytest.approx(time.time() + oauth.UNKNOWN_LIFE_S, abs=10)


async def test_kept_and_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token serves until most of its life is over, and is renewed before its end."""
    text = "import itertools, time\nnumbers = itertools.count()\ndef token(): return f'n{next(numbers)}', time.time() + 100"
    tokens = Tokens(_function("t_kept", text))
    now = time.time()

    seen = [await tokens.token(), await tokens.token()]
    monkeypatch.setattr(time, "time", lambda: now + 79)
    seen.append(await tokens.token())
    monkeypatch.setattr(time, "time", lambda: now + 82)
    seen.append(await tokens.token())

    assert seen == ["n0", "n0", "n0", "n1"]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("f_raises", "def token(): raise KeyError('AWS_REGION')", "fails: KeyError: 'AWS_REGION'"),
        ("f_none", "def token(): return None", "returns NoneType: it must return the token"),
        ("f_over", "def token(): return 'abc', 5", "gives a token that has expired"),
    ],
)
def test_a_function_that_fails(name: str, text: str, complaint: str) -> None:
    source = TokenSource(_function(name, text))
    said = re.escape(f"kafka.sasl_oauth_callback = '{name}:token' {complaint}")
    with pytest.raises(PrerequisiteError, match=said):
        source.current()


@pytest.mark.parametrize(
    ("callback", "complaint"),
    [
        ("no_such_module_here:token", "does not load (ModuleNotFoundError"),
        ("json:nothing", "does not load (AttributeError"),
        ("json:__name__", "is not a function"),
    ],
)
def test_no_function(callback: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(complaint)):
        client_options(_kafka(sasl_oauth_callback=callback))


async def test_without_a_token_clients_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that is away ends no client, because aiokafka retries that error. Verbs report the reason at once."""
    kafka = _function("t_away", "def token(): raise OSError('away')")

    with pytest.raises(KafkaConnectionError, match="fails: OSError: away"):
        await Tokens(kafka).token()
    with pytest.raises(PrerequisiteError, match="fails: OSError: away"):
        confluent_options(kafka)


def test_client_credentials(provider: _Provider) -> None:
    """ID and secret as RFC 6749 has them, the scope where there is one; the token's life as the provider says."""
    found = TokenSource(_credentials(provider, sasl_oauth_scope="kafka")).current()

    assert found.text == "granted"
    assert found.expires == pytest.approx(time.time() + 3600, abs=10)
    ((login, form),) = provider.asked
    assert [urllib.parse.unquote(part) for part in login.split(":")] == ["ringfence:1", SECRET]
    assert form == {"grant_type": "client_credentials", "scope": "kafka"}


@pytest.mark.parametrize("status", [200, 401])
def test_no_secret_in_logs(provider: _Provider, caplog: pytest.LogCaptureFixture, status: int) -> None:
    provider.status = status
    for name in ("", "urllib3", "requests", "authlib"):
        caplog.set_level(logging.DEBUG, name)
    with contextlib.suppress(PrerequisiteError):
        TokenSource(_credentials(provider)).current()

    assert len(provider.asked) == 1
    quoted = urllib.parse.quote(SECRET, safe="")
    login = base64.b64encode(f"ringfence%3A1:{quoted}".encode()).decode()
    assert not [name for name in (SECRET, quoted, login, "granted") if name in caplog.text]


def test_the_certificate_of_a_provider(
    provider: _Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates are verified with the system's authorities, which ``SSL_CERT_FILE`` replaces."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    provider.socket = context.wrap_socket(provider.socket, server_side=True)
    kafka = _credentials(provider, sasl_oauth_token_url=provider.url.replace("http:", "https:"))

    with pytest.raises(PrerequisiteError, match=r"gives no token \(SSLError: .*certificate verify failed"):
        TokenSource(kafka).current()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert TokenSource(kafka).current().text == "granted"


@pytest.mark.parametrize(
    ("status", "answer", "complaint"),
    [
        (401, {}, "refuses kafka.sasl_oauth_client_id = 'ringfence:1' (HTTP 401): fix the ID, or the secret in $OAUTH_SECRET"),
        (200, {"error": "invalid_client"}, "'ringfence:1' (invalid_client): fix the ID"),
        (503, {}, "gives no token (HTTPError: 503"),
        (200, "nothing", "gives no token"),
        (200, {"token": "x"}, "gives no token"),
        (200, None, "gives no token"),
    ],
)  # fmt: skip
def test_a_provider_that_gives_none(provider: _Provider, status: int, answer: object, complaint: str) -> None:
    """A refusal names the ID and the place of the secret, and not the secret. A server error does not blame them."""
    provider.status, provider.answer = status, answer

    with pytest.raises(PrerequisiteError) as caught:
        TokenSource(_credentials(provider)).current()

    assert complaint in str(caught.value)
    assert SECRET not in str(caught.value)


def test_from_a_command_config(tmp_path: Path, provider: _Provider) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={provider.url}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId=me "
        f'clientSecret="{SECRET}" scope=kafka;\n'
    )

    assert TokenSource(validate({"kafka": {"command_config": str(path)}}).kafka).current().text == "granted"
    assert provider.asked[0][1]["scope"] == "kafka"


def test_each_client(provider: _Provider) -> None:
    """Aiokafka and librdkafka ask for tokens; Java fetches its own, and cannot call a function of Python's."""
    kafka = _credentials(provider)
    function = _function("t_each", "def token(): return 'abc', 4_000_000_000")

    for _ in range(3):  # a thousand producers need no thousand tokens
        confluent_options(kafka)
    assert len(provider.asked) == 1
    assert isinstance(client_options(kafka)["sasl_oauth_token_provider"], Tokens)
    assert confluent_options(function)["oauth_cb"]("") == ("abc", 4_000_000_000)
    source = kafka_options(kafka)
    assert source["kafka.sasl.oauthbearer.token.endpoint.url"] == provider.url
    assert source["kafka.sasl.oauthbearer.header.urlencode"] == "true"
    assert f'clientId="ringfence:1" clientSecret="{SECRET}";' in source["kafka.sasl.jaas.config"]
    with pytest.raises(ConfigurationError, match="Spark's Kafka client is Java's and cannot call it"):
        kafka_options(function)


def test_who_cannot_call_it_says_so_first() -> None:
    """A client that cannot call the function is refused before the cluster is asked or Spark starts."""
    keys = {"bootstrap_servers": "127.0.0.1:1", "sasl_oauth_callback": "json:loads"}
    settings = validate({"kafka": BEARER | keys, "addresses": [{"name": "orders"}]})
    (orders,), master = settings.addresses, settings.reconcile.master
    asked = audit.Request(Wanted("orders"), settings.kafka, orders, "orders", Fraction(1), master)

    with pytest.raises(ConfigurationError, match="cannot call it"):
        job.run_job(settings, job.Options())
    with pytest.raises(ConfigurationError, match="cannot call it"):
        audit.run_audit(asked)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({}, f"needs sasl_oauth_callback, or {', '.join(CREDENTIALS)}"),
        ({"sasl_oauth_token_url": "https://x"}, "sasl_oauth_client_id, sasl_oauth_client_secret_env missing"),
        (CALLBACK | {"sasl_oauth_scope": "x"}, "cannot be combined with sasl_oauth_scope"),
        ({"sasl_oauth_callback": "a.b"}, "write pkg.module:function"),
        (CALLBACK | {"sasl_username": "me"}, "= 'me' has no effect with sasl_mechanism = 'OAUTHBEARER'"),
        (CALLBACK | {"security_protocol": "PLAINTEXT"}, "has no effect with security_protocol = 'PLAINTEXT'"),
        (CREDENTIALS | {"sasl_oauth_token_url": "file:///x"}, "write an address that begins with https://"),
        (CREDENTIALS | {"sasl_oauth_client_secret_env": "s3cret-itself"}, "(hidden: may be the password itself): that variable is not set"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit(keys: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        _kafka(**keys)

    assert complaint in str(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_a_login_has_an_end() -> None:
    """A login ends even if a broker keeps answering after it has refused."""
    login = TokenLogin(sasl_oauth_token_provider=None)

    assert await login.step(b'{"status":"invalid_token"}') == (b"\x01", True)
    with pytest.raises(SaslAuthenticationFailed, match="invalid_token"):
        await login.step(b'{"status":"invalid_token"}')
