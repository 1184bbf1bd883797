"""Keeps web pages of other origins from changing anything through a browser.

A browser sends requests of any page to any address that its machine reaches. Three things identify them: the page's ``Origin``, a
``Host`` with another name of this machine (DNS rebinding), and a content type that needs no permission of this server.
"""

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from aiohttp import web

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
JSON = "application/json"
"""Content type that a page of another origin may not send without permission, which these servers never give."""


def refusal(request: web.Request, names: Collection[str], wanted_type: str = JSON) -> str | None:
    """Return why a changing request is refused; None = accept it.

    Programs send no ``Origin``, and only newer browsers send ``Sec-Fetch-Site``. ``names``: host names of this server, besides addresses,
    localhost and the machine's own name; ``wanted_type``: required media type.
    """
    host, origin, site = request.host, request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    if not is_ours(host, names):
        return f"Host {host!r} is not a name of this server: ask by address, or set app.web_name to that name"
    if origin is not None and not _is_origin(origin, host):
        return f"Origin {origin!r} is another one than this server's: a web page of another origin may change nothing here"
    if site not in {None, "same-origin", "none"}:
        return f"Sec-Fetch-Site {site!r}: a web page of another origin may change nothing here"
    if request.content_type != wanted_type:
        return f"Content-Type {request.content_type!r}: send {wanted_type}"
    return None


def port(host: str) -> int | None:
    """Return the port in a ``Host`` header; None if it has none, or is malformed."""
    try:
        return urlsplit(f"//{host}").port
    except ValueError:
        return None


def _is_origin(origin: str, host: str) -> bool:
    """Return whether an ``Origin`` header is the server in ``Host``. A malformed one is not."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def is_ours(host: str, names: Collection[str]) -> bool:
    """Return whether a ``Host`` header names this server: any address, localhost, the machine's name, or one of ``names``."""
    try:
        name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return False
    if name in {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
