"""Detects that a broker refuses an OAuth token."""

import aiokafka.conn
from aiokafka.conn import OAuthAuthenticator
from aiokafka.errors import SaslAuthenticationFailed

_UNDERSTOOD = b"\x01"


class TokenLogin(OAuthAuthenticator):  # type: ignore[misc]
    """Authenticator that answers a refusal and raises the broker's reason.

    A broker refuses with a challenge (RFC 7628, 3.2.2 and 3.2.3). It sends its reason after the client answers with one byte. aiokafka
    itself treats any response as success, and finds the connection closed later.
    """

    _refused = False

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next bytes to send, and that a response follows; None after the login.

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
