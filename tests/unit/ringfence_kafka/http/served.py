"""Pages behind authentication on a free port, and certificates for them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trustme
from aiohttp import web
from aiohttp.typedefs import Handler

from ringfence_kafka.http.auth import HttpAuth
from ringfence_kafka.http.server import advertised, serving_routes
from ringfence_kafka.http.sockets import listen


@asynccontextmanager
async def served(auth: HttpAuth, page: Handler, host: str = "127.0.0.1") -> AsyncIterator[str]:
    """Yield the URL of a server that answers all its paths by one page."""
    listener = listen(host, None)
    routes = [web.route(method, path, page) for method in ("GET", "POST") for path in ("/{a}", "/{a}/{b}")]
    async with serving_routes(routes, listener, auth):
        yield advertised(*listener.getsockname()[:2], auth=auth)


def certificate_files(folder: Path, name: str = "127.0.0.1", **times: Any) -> dict[str, str]:
    """Return settings of a server with a certificate of a new authority."""
    authority = trustme.CA()
    certificate = authority.issue_cert(name, **times)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    certificate.private_key_pem.write_to_path(folder / "web.key")
    certificate.cert_chain_pems[0].write_to_path(folder / "web.pem")
    return {
        "web_tls_certfile": str(folder / "web.pem"),
        "web_tls_keyfile": str(folder / "web.key"),
        "web_tls_cafile": str(folder / "ca.pem"),
    }
