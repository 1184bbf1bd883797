"""An identity provider: signed tokens by client credentials, and the keys by which a broker verifies them."""

import base64
import json
import re
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ISSUER: Final = "https://idp.test"
AUDIENCE: Final = "kafka"
LIFE_S: Final = 300
_KEY: Final = "first"


class Issuer(ThreadingHTTPServer):
    """Runs from its creation until :meth:`close`."""

    def __init__(self, folder: Path, client: str, secret: str) -> None:
        """``client``: the only client, and the subject of its tokens."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self._key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.client = client
        self._login = [client, secret]
        self.keys = folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [self._public()]}))
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/token"

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def knows(self, header: str) -> bool:
        """Whether the header has ID and secret, each encoded as in a URL (RFC 6749, 2.3.1), and not as they are."""
        given = base64.b64decode(header.removeprefix("Basic ")).decode().split(":")
        safe = all(re.fullmatch(r"[\w.~*+%-]*", name, re.ASCII) for name in given)
        return safe and [urllib.parse.unquote_plus(name) for name in given] == self._login

    def token(self) -> str:
        now = int(time.time())
        head = {"alg": "RS256", "typ": "JWT", "kid": _KEY}
        claims = {"sub": self.client, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + LIFE_S}
        text = ".".join(_base64(json.dumps(item).encode()) for item in (head, claims))
        return f"{text}.{_base64(self._key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _public(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        shown = {
            name: _base64(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            for name, number in (("n", numbers.n), ("e", numbers.e))
        }
        return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY, **shown}


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        asked = "grant_type=client_credentials" in form
        granted = asked and self.server.knows(self.headers.get("Authorization", ""))
        answer: dict[str, Any] = {"error": "invalid_client"}
        if granted:
            answer = {"access_token": self.server.token(), "token_type": "Bearer", "expires_in": LIFE_S}
        self.send_response(200 if granted else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing: tests print what they need."""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
