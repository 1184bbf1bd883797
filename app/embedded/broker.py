"""A real Apache Kafka with one node (KRaft), as a child of this process."""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from app.embedded import classes, data_folder, jars, ports, server_files
from app.embedded.broker_process import (
    HOST,
    BrokerProcess,
    java_command,
    raise_if_refused,
    relevant_lines,
)
from ringfence_kafka.errors import PrerequisiteError

_OUTPUT: Final = "broker.out"
_POLL_S: Final = 0.05
_ANSWER_TIMEOUT_S: Final = 30


class EmbeddedBroker(BrokerProcess):
    """Starts, stops and disturbs one broker.

    After any end, a restarted broker has its data, its cluster ID and its port again.

    Args:
        directory: Folder for ``data/``, ``broker.log`` and the generated configuration. Created if missing.
        port: Port for clients; 0 = a free one, chosen now.
        properties: Broker properties that override Ringfence's few own ones.
        version: Version of Kafka; None = from the environment, else the default.
        archive: File for an archive of classes, written at the end; None = use an existing archive.

    Raises:
        PrerequisiteError: The version is unknown.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        version: str | None = None,
        archive: Path | None = None,
    ) -> None:
        super().__init__(directory, port)
        self.version: Final = jars.chosen_version(version)
        self._properties = dict(properties or {})
        self._archive = archive
        self._log_begin = 0

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients, known before the start."""
        return f"{HOST}:{self.port}"

    def start(self, timeout: float = 60) -> None:
        """Start the broker and wait until it answers clients.

        Args:
            timeout: Limit in seconds, without the time for fetching jars on a new machine.

        Raises:
            PrerequisiteError: Java or the jars are missing; port or folder are in use; or the broker ended
                early or did not answer in time, with the last lines of its log. No process is left.
        """
        if self.running:
            raise self._occupied(str(self.pid))
        self._process = None
        command = java_command(self.version, archived=self._archive is None)
        deadline = time.monotonic() + timeout
        try:
            self._launch(command)
            self._await_answer(deadline, timeout)
        except OSError as error:
            self.kill()
            raise PrerequisiteError(
                f"{error.filename or self.directory}: {error.strerror}: the broker needs a folder to write to, "
                "name one with --dir"
            ) from error
        except BaseException:  # includes Ctrl-C: no process may be left
            self.kill()
            raise

    def described_properties(self) -> dict[str, bool]:
        """Return the properties of the running broker: name → whether it hides the value."""
        resource = ConfigResource(ConfigResource.Type.BROKER, str(server_files.NODE_ID))
        client = self._admin()  # keep a reference: a future does not keep its client alive
        described = client.describe_configs([resource], request_timeout=_ANSWER_TIMEOUT_S)
        return {name: bool(item.is_sensitive) for name, item in described[resource].result().items()}

    def log_tail(self) -> str:
        """Return errors of the log since this start, else its last lines, and Java's own output."""
        begin = self._log_begin if self._log_size() >= self._log_begin else 0  # a smaller log was rolled over
        texts = []
        for name, offset in ((server_files.LOG, begin), (_OUTPUT, 0)):
            with contextlib.suppress(FileNotFoundError):
                texts.append((self.directory / name).read_bytes()[offset:].decode("utf-8", "replace"))
        return "\n".join(relevant_lines(text) for text in texts if text.strip())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _launch(self, command: list[str]) -> None:
        """Write the configuration, format the folder if it is new, start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._exclusive() as lock:
            ports.require_free(HOST, self.port)
            self._write_files(self._properties)
            data_folder.prepare(self.directory, self.version, command)
            written = [] if self._archive is None else classes.writing(self._archive)
            self._log_begin = self._log_size()
            self._execute(command, ["-Xmx512m", *written], self.directory / _OUTPUT, lock)
            os.pwrite(lock, f"{self.pid}\n".encode(), 0)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[int]:
        """Hold the folder's lock. The broker inherits it, so it is released only when the broker ends."""
        lock = os.open(self.directory / "broker.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._occupied(os.pread(lock, 32, 0).decode().strip() or "just starting") from None
            os.ftruncate(lock, 0)
            yield lock
        finally:
            os.close(lock)

    def _occupied(self, holder: str) -> PrerequisiteError:
        return PrerequisiteError(
            f"{self.directory} already has a running broker (process {holder}): stop it, "
            "or name another folder with --dir"
        )

    def _await_answer(self, deadline: float, timeout: float) -> None:
        """Wait until client metadata has this broker, which means that it is registered and unfenced."""
        client: AdminClient | None = None
        while True:
            if not self.running:
                raise_if_refused(self.log_tail())
                raise PrerequisiteError(
                    f"the broker ended while it started: fix what its log names:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    f"the broker did not answer at {self.bootstrap_servers} within {timeout:g} s: give it more time "
                    f"or memory, or fix what its log names:\n{self.log_tail()}"
                )
            if client is None and ports.answers(HOST, self.port):
                client = self._admin()
            if client is not None:
                with contextlib.suppress(KafkaException):
                    if server_files.NODE_ID in client.list_topics(timeout=1).brokers:
                        return
            time.sleep(_POLL_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _log_size(self) -> int:
        log = self.directory / server_files.LOG
        return log.stat().st_size if log.exists() else 0
