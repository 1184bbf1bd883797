"""Hears that a broker refuses an OAuth token."""

import aiokafka.conn
from aiokafka.conn import OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

_UNDERSTOOD = b"\x01"


class TokenLogin(OAuthAuthenticator):  # type: ignore[misc]
    """Answers a refusal, and raises the broker's reason.

    A broker refuses by a challenge, and sends its reason once the client answers that with one byte (RFC 7628, 3.2.2 and 3.2.3). By itself
    aiokafka takes any answer for success, and finds the connection closed later.
    """

    _refused = False

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """Return what to send next, and that an answer comes; None after the login.

        Raises:
            SaslAuthenticationFailed: the broker gave its reason.
        """
        if payload:
            if self._refused:
                raise SaslAuthenticationFailed(payload.decode(errors="replace"))
            self._refused = True
            return _UNDERSTOOD, True
        step: tuple[bytes, bool] | None = await super().step(payload)
        return step


def install() -> None:
    """Use it in each new connection."""
    aiokafka.conn.OAuthAuthenticator = TokenLogin
