"""A real Apache Kafka of one node (KRaft) in a folder, as a child of this process."""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from app.embedded import broker_log, child, classes, data_folder, jars, ports, server_files
from ringfence_kafka.errors import PrerequisiteError
from ringfence_kafka.process import java

HOST: Final = "127.0.0.1"

# The first compiler tier alone: half the CPU of a start, and a million records cost 1.3 CPU seconds against 2.9
# with all tiers or 4.2 with G1, which a large heap would need and this one does not.
_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError")
_OUTPUT: Final = "broker.out"
_POLL_S: Final = 0.05
_ANSWER_TIMEOUT_S: Final = 30


class EmbeddedBroker:
    """Starts, stops and disturbs one broker.

    Folder and port are kept: a broker that starts again, whatever ended it, has its data and its cluster ID,
    and clients find it where it was. Start it on the main thread: see :func:`app.embedded.child.launch`.

    Args:
        directory: Holds ``data/``, ``broker.log``, the generated configuration. Made when missing.
        port: Where clients connect; 0 = a free one, chosen now.
        properties: Broker properties over Ringfence's own, which are few.
        version: Of Kafka; None = the one that the environment names, else the usual one.
        heap: Largest heap of the Java process, as ``-Xmx`` has it.
        archive: Where to write the archive of classes when it stops; None = one that is there is used.

    Raises:
        PrerequisiteError: the version is not known.
    """

    def __init__(
        self,
        directory: Path,
        port: int = 0,
        *,
        properties: Mapping[str, str] | None = None,
        version: str | None = None,
        heap: str = "512m",
        archive: Path | None = None,
    ) -> None:
        self.directory: Final = directory.absolute()
        self.version: Final = jars.chosen_version(version)
        self.port: Final = port or ports.choose(HOST)
        self._controller_port = ports.choose(HOST)
        self._properties = dict(properties or {})
        self._heap = heap
        self._archive = archive
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients; known before the broker runs."""
        return f"{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether the Java process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process ID of the running broker.

        Raises:
            RuntimeError: it does not run.
        """
        if self._process is None or not self.running:
            raise RuntimeError(f"the broker in {self.directory} does not run: call start() first")
        return self._process.pid

    @property
    def pids(self) -> list[int]:
        """That, where a cluster may have more.

        Raises:
            RuntimeError: it does not run.
        """
        return [self.pid]

    @property
    def cluster_id(self) -> str:
        """The ID that formatting gave to the cluster.

        Raises:
            RuntimeError: it was never started.
        """
        if found := data_folder.cluster_id(self.directory):
            return found
        raise RuntimeError(f"{self.directory} holds no cluster yet: call start() first")

    def start(self, timeout: float = 60) -> None:
        """Start the broker and wait until it answers clients.

        Args:
            timeout: Seconds, apart from fetching the jars, which happens once per machine.

        Raises:
            PrerequisiteError: no Java or jars; port or folder in use; or the broker ended early or did not
                answer in time, with the last lines of its log. Nothing is left running.
        """
        if self.running:
            raise self._occupied(str(self.pid))
        self._process = None
        program, class_path = java.find(), jars.class_path(bundle=jars.kafka(self.version))
        deadline = time.monotonic() + timeout
        try:
            shared = classes.reading(program, class_path) if self._archive is None else []
            self._launch([str(program), *shared, "-Dlog4j2.configurationFile=log4j2.xml", "-cp", class_path])
            self._await_answer(deadline, timeout)
        except OSError as error:
            self.kill()
            raise PrerequisiteError(
                f"{error.filename or self.directory}: {error.strerror}: the broker needs a folder to write to, "
                "name one with --dir"
            ) from error
        except BaseException:  # Ctrl-C as well: nothing is left running
            self.kill()
            raise

    def stop(self, timeout: float = 30) -> None:
        """End the broker in order; kill it if that takes longer than ``timeout`` seconds. May be repeated."""
        if self._process is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the broker at once, as a power cut would. May be repeated."""
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Freeze the broker: its port stays open, and nothing answers from now on."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal takes a moment to stop all threads. Its end, if it came first, is left to whoever waits for it.
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """End a :meth:`pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> None:
        """Wait until the process ends, of whatever cause."""
        if self._process is not None:
            self._process.wait()

    def described_properties(self) -> dict[str, bool]:
        """What the running broker has for properties: name → whether it hides the value."""
        resource = ConfigResource(ConfigResource.Type.BROKER, str(server_files.NODE_ID))
        client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        described = client.describe_configs([resource], request_timeout=_ANSWER_TIMEOUT_S)[resource].result()
        return {name: bool(item.is_sensitive) for name, item in described.items()}

    def log_tail(self) -> str:
        """What tells why this start went wrong: its errors, else its last lines; and what Java itself said."""
        begin = self._log_begin if self._log_size() >= self._log_begin else 0  # else it was rolled over
        texts = []
        for name, offset in ((server_files.LOG, begin), (_OUTPUT, 0)):
            with contextlib.suppress(FileNotFoundError):
                texts.append((self.directory / name).read_bytes()[offset:].decode("utf-8", "replace"))
        return "\n".join(broker_log.telling(text) for text in texts if text.strip())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _signal(self, number: signal.Signals) -> None:
        """Signal the process unless it has ended: Popen knows, and spares a process that reuses the ID."""
        if self._process is not None:
            self._process.send_signal(number)

    def _launch(self, java_command: list[str]) -> None:
        """Write the configuration, format the folder if it is new, start the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._exclusive() as lock:
            ports.require_free(HOST, self.port)
            self._write_files()
            data_folder.prepare(self.directory, self.version, [*java_command, *_JVM_OPTIONS])
            written = [] if self._archive is None else classes.writing(self._archive)
            options = [*_JVM_OPTIONS, f"-Xmx{self._heap}", *written]
            command = [*java_command, *options, "kafka.Kafka", "server.properties"]
            self._log_begin = self._log_size()
            with (self.directory / _OUTPUT).open("wb") as output:
                self._process = child.launch(command, cwd=self.directory, output=output, keep=lock)
            os.pwrite(lock, f"{self._process.pid}\n".encode(), 0)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[int]:
        """Hold the folder's lock. The broker inherits it: it is free when the broker is gone, and not before."""
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

    def _write_files(self) -> None:
        properties = server_files.server_properties(HOST, self.port, self._controller_port, self._properties)
        (self.directory / "server.properties").write_text(properties, "utf-8")
        (self.directory / "log4j2.xml").write_text(server_files.LOG4J2, "utf-8")

    def _await_answer(self, deadline: float, timeout: float) -> None:
        """Wait until the metadata that a client gets names this broker: then it is registered and unfenced."""
        client: AdminClient | None = None
        while True:
            if not self.running:
                broker_log.raise_if_refused(self.log_tail())
                raise PrerequisiteError(
                    f"the broker ended while it started: fix what its log names:\n{self.log_tail()}"
                )
            if time.monotonic() > deadline:
                raise PrerequisiteError(
                    f"the broker did not answer at {self.bootstrap_servers} within {timeout:g} s: give it more time "
                    f"or memory, or fix what its log names:\n{self.log_tail()}"
                )
            if client is None and ports.answers(HOST, self.port):
                client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            if client is not None:
                with contextlib.suppress(KafkaException):
                    if server_files.NODE_ID in client.list_topics(timeout=1).brokers:
                        return
            time.sleep(_POLL_S)

    def _log_size(self) -> int:
        log = self.directory / server_files.LOG
        return log.stat().st_size if log.exists() else 0
