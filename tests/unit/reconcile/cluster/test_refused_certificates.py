"""Errors for a broker with an invalid certificate, or one that refuses ours: the problem and the remedy."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import trustme
from confluent_kafka import KafkaError

from reconcile.cluster import access as nightly
from ringfence_kafka.auth import client_options
from ringfence_kafka.config.settings import KafkaSettings

NOW = datetime.now(UTC)
DAY = timedelta(days=1)
PAST: dict[str, Any] = {"not_before": NOW - 9 * DAY, "not_after": NOW - DAY}
FUTURE: dict[str, Any] = {"not_before": NOW + DAY, "not_after": NOW + 9 * DAY}


class Site:
    """An authority, and a listener of TLS that it vouches for."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.cafile = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.cafile)

    @asynccontextmanager
    async def serving(
        self, name: str = "127.0.0.1", *, asks: bool = False, **times: Any
    ) -> AsyncIterator[str]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(name, **times).configure_cert(context)
        if asks:
            self.authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED

        async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

        server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=context)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def kafka(self, server: str, **options: str) -> KafkaSettings:
        given = {"security_protocol": "SSL", "ssl_cafile": str(self.cafile), **options}
        return KafkaSettings.model_validate({"bootstrap_servers": server, **given})


async def _told(kafka: KafkaSettings) -> list[str]:
    found = await client_options.refusal(kafka)
    heard = f"ssl://{kafka.bootstrap_servers}/bootstrap: SSL handshake failed: certificate verify failed"
    by_run = await asyncio.to_thread(nightly.unreachable, kafka, [KafkaError(KafkaError._SSL, heard)])
    return [str(found), str(by_run)]


async def test_of_the_broker(tmp_path: Path) -> None:
    for name, times, said in (
        ("127.0.0.1", PAST, "its certificate has expired: have that of the broker renewed"),
        ("127.0.0.1", FUTURE, "its certificate is not valid yet: see that the broker's clock"),
        ("broker.test", {}, "its certificate is for another name (IP address mismatch, certificate is not valid for '127.0.0.1'): name the"),
    ):  # fmt: skip
        site, stranger = Site(tmp_path), str(tmp_path / "stranger.pem")
        trustme.CA().cert_pem.write_to_path(stranger)
        async with site.serving(name, **times) as server:
            told, untrusted = (
                await _told(site.kafka(server)),
                await _told(site.kafka(server, ssl_cafile=stranger)),
            )

        for item in told:
            assert said in item
            assert "ssl_cafile" not in item
        for item in untrusted:
            assert "its certificate is not trusted (" in item
            assert item.endswith(f"set kafka.ssl_cafile, now {stranger!r}, to the authority that signed it")


async def test_of_the_client(tmp_path: Path) -> None:
    """The error about our certificate names its end from the file, because the broker reports little or nothing."""
    for times, said in ((PAST, "which expired on"), (FUTURE, "which is valid only from")):
        site = Site(tmp_path)
        issued = site.authority.issue_cert("client.test", **times)
        files = {"ssl_certfile": str(tmp_path / "client.pem"), "ssl_keyfile": str(tmp_path / "client.key")}
        issued.cert_chain_pems[0].write_to_path(files["ssl_certfile"])
        issued.private_key_pem.write_to_path(files["ssl_keyfile"])
        async with site.serving(asks=True) as server:
            error = await client_options.refusal(site.kafka(server, **files))

        assert f"it refuses kafka.ssl_certfile = {files['ssl_certfile']!r}, {said}" in str(error)
        assert "have it renewed" in str(error)
