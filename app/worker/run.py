"""``ringfence worker``: checks the environment, then runs the worker's app."""

import asyncio
import contextlib
import fcntl
import logging
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import native
from agents.topic_checks.addresses import say_fault
from app.commands.topics import access_rights, topics
from app.commands.topics.required_topics import Findings
from app.worker.faust_app import RingfenceApp
from app.worker.faust_parts import Worker
from app.worker.fetch.buffers import COPIES
from app.worker.membership.group import renew
from app.worker.parts import WorkerParts
from ringfence_kafka import aiokafka_patches
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, PrerequisiteError, TopicError
from ringfence_kafka.http.sockets import server_socket
from ringfence_kafka.process import failpoints, gc_settings, log_setup
from ringfence_kafka.producer import transaction_version
from ringfence_kafka.protocol.oversized_records import RECORD_BYTES_MAX

log: Final = logging.getLogger("ringfence.worker")

FILES_PER_LANE: Final = 12
"""Open files of one lane: RocksDB's, with some tables, and its share of connections."""
FILES_BESIDE_LANES: Final = 150


def run_worker(settings: Settings, web_port: int | None = None) -> int:
    """Run a worker until SIGTERM or SIGINT.

    Raises:
        RingfenceError: The worker cannot start. The message has the problem and its fix.
    """
    log_setup.configure()
    if fault := native.fault():
        raise ConfigurationError(fault)
    transaction_version.wanted()  # report an invalid environment variable once here, not in each lane
    failpoints.install_from_environment()
    record_bytes_max = max(RECORD_BYTES_MAX, settings.app.buffer_bytes_max // COPIES)
    aiokafka_patches.install(whole_process=True, record_bytes_max=record_bytes_max)
    if web_port is not None:
        settings = settings.with_web_port(web_port)
    raise_file_limit()
    warn_of_file_limit(settings)
    findings, denied = asyncio.run(topics.examine(settings)), asyncio.run(access_rights.missing(settings))
    findings.merge(denied)
    if findings.fatal:
        raise TopicError("\n".join(findings.faults))
    _check_port(settings.app.web_host, settings.app.web_port)
    with _own_folder(settings.state_dir):
        log.info(
            "worker %s of %s starts: %d addresses, state in %s, path: %s",
            settings.app.instance_name, settings.app.id, len(settings.addresses), settings.state_dir.absolute(), native.spoken,
        )  # fmt: skip
        _say(findings)
        if settings.app.static_membership:
            asyncio.run(renew(settings))
        built = WorkerParts(settings, findings.by_address, denied.by_address)
        return _execute(RingfenceApp(built))


def _say(findings: Findings) -> None:
    for note in findings.notes:
        log.info("note: %s", note)
    for name, faults in findings.by_address.items():
        for fault in faults:
            say_fault(name, fault)


def _check_port(host: str, port: int) -> None:
    """Report a used port before anything starts, because the web server itself would print a traceback."""
    if not port:
        return
    try:
        with server_socket(host, port):
            return
    except OSError as error:
        raise PrerequisiteError(
            f"app.web_port = {port}: cannot listen on {host}:{port} ({error.strerror}): "
            "choose another with --web-port, or 0 for none"
        ) from error


def _execute(app: RingfenceApp) -> int:
    gc_settings.collect_rarely()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    worker = Worker(app, loop=loop, quiet=True, override_logging=False, loglevel=logging.WARNING)
    worker.spinner = None
    try:
        worker.execute_from_commandline()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if app.fault:
        raise PrerequisiteError(f"the worker had to stop: {app.fault}")
    log.info("stopped")
    return code


@contextlib.contextmanager
def _own_folder(folder: Path) -> Iterator[None]:
    """Lock the worker's state folder for this process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PrerequisiteError(
            f"app.data_dir: {folder} cannot be written ({error.strerror}): fix that, or name another folder"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise PrerequisiteError(
            f"another worker runs in {folder}: give this one its own app.instance, or its own --web-port"
        ) from error
    try:
        yield
    finally:
        os.close(lock)


def raise_file_limit() -> None:
    """Raise this process's limit of open files from a shell's 1,024 to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in {hard, resource.RLIM_INFINITY}:
        with contextlib.suppress(ValueError, OSError):  # some systems refuse the hard limit that they report
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def warn_of_file_limit(settings: Settings) -> None:
    """Warn if the hard limit is too low for all lanes of the configured addresses."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    lanes = sum(address.partitions for address in settings.addresses)
    needed = FILES_BESIDE_LANES + FILES_PER_LANE * lanes
    if most != resource.RLIM_INFINITY and most < needed:
        log.warning(
            "this process may open %d files, and a worker with all %d lanes needs %d. Lanes beyond the "
            "limit keep their state in memory. Raise the limit (ulimit -Hn %d, LimitNOFILE= of systemd, "
            "ulimits of a container), or start more workers",
            most, lanes, needed, needed,
        )  # fmt: skip
