"""``ringfence consume``: runs a handler over the groups of an address."""

import asyncio
import builtins
import contextlib
import dataclasses
import importlib
import logging
import os
import socket
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ringfence_client import ConsumerOptions, GroupConsumer
from ringfence_client.handlers.handler import check_handler
from ringfence_client.web import web
from ringfence_kafka.config.settings import Settings
from ringfence_kafka.errors import ConfigurationError, RingfenceError
from ringfence_kafka.http.auth import HttpAuth, http_auth
from ringfence_kafka.http.server import advertised
from ringfence_kafka.http.sockets import listen
from ringfence_kafka.process import failpoints, gc_settings, log_setup, signals

log: Final = logging.getLogger("ringfence.consumer")


def run_consumer(
    settings: Settings,
    address: str,
    handler: str,
    group: str,
    options: ConsumerOptions,
    web_port: int | None,
    reject_on: Sequence[str] = (),
) -> int:
    """Consume until SIGTERM, SIGINT or SIGHUP; then drain, write progress, and leave the group. ``reject_on``: names of classes."""
    log_setup.configure()
    failpoints.install_from_environment()
    found = settings.configured(address)
    call = load_handler(handler)
    lost = load_lost(handler)
    if reject_on:
        options = _rejecting(options, load_exceptions(reject_on))
    guard = http_auth(settings.app)
    listener = None if web_port == 0 else listen(settings.app.web_host, web_port)
    name = settings.app.web_name
    url = "" if listener is None else advertised(*listener.getsockname()[:2], name=name, auth=guard)
    consumer = GroupConsumer(settings, found, group, call, options, lost=lost, web=url)
    gc_settings.collect_rarely()
    with asyncio.Runner() as runner:  # its end waits without limit for cancelled coroutines
        try:
            runner.run(_consume(consumer, listener, guard, url))
        except RingfenceError as error:
            _end_despite_handlers(consumer, error)
            raise
        log.info("stopped")
        _end_despite_handlers(consumer)
    return 0


def _end_despite_handlers(consumer: GroupConsumer, error: RingfenceError | None = None) -> None:
    """End the process despite hanging handlers: Python waits for threads, and asyncio for coroutines, without limit."""
    left = consumer.dispatcher.runs.left_behind
    if not left:
        return
    log.warning(
        "%d handlers still run, in threads or despite their cancellation: the process ends without them, "
        "and their messages are handled again",
        left,
    )
    if error is not None:
        click.echo(f"ringfence: {error}", err=True)
    logging.shutdown()
    sys.stdout.flush()
    os._exit(error.exit_code if error is not None else 0)


async def _consume(
    consumer: GroupConsumer, listener: socket.socket | None, guard: HttpAuth, url: str
) -> None:
    signals.on_termination(consumer.stop)
    async with contextlib.AsyncExitStack() as stack:
        if listener is not None:
            await stack.enter_async_context(web.serving(consumer, listener, guard))
            log.info("web server at %s", url)
        await consumer.run()


def load_handler(text: str) -> Callable[..., Any]:
    """Return the function that ``MODULE:FUNCTION`` names. The current folder comes first."""
    name, colon, path = text.partition(":")
    if not (name and colon and path):
        raise ConfigurationError(
            f"--handler {text!r} is not MODULE:FUNCTION; write for example orders:handle"
        )
    found = _imported(name, f"--handler {text!r}")
    for part in path.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"--handler {text!r}: {name} has no {path}")
        found = getattr(found, part)
    check_handler(found, f"--handler {text!r}: {path}")
    return found  # type: ignore[no-any-return]


def load_lost(text: str) -> Callable[..., Any] | None:
    """Return the function ``lost`` of a handler's loaded module; None = the module has no such function."""
    found: Any = getattr(sys.modules[text.partition(":")[0]], "lost", None)
    if found is not None:
        name = f"lost in the module of --handler {text!r}"
        check_handler(found, name, "the groups that are lost", "def lost(groups)")
    return found  # type: ignore[no-any-return]


def load_exceptions(texts: Sequence[str]) -> tuple[type[Exception], ...]:
    """Return the classes that ``--reject-on`` names. Each text has one name, or several with commas between them."""
    names = dict.fromkeys(name.strip() for text in texts for name in text.split(","))
    found = {name: _exception(name) for name in names}
    for name, item in found.items():
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise ConfigurationError(f"--reject-on {name!r} is {item!r}, and not a class of exceptions")
    return tuple(found.values())


def _exception(name: str) -> Any:
    option = f"--reject-on {name!r}"
    first, *parts = name.split(".")
    if not all(part.isidentifier() for part in (first, *parts)):
        raise ConfigurationError(
            f"{option} names no exception; write for example ValueError,json.JSONDecodeError"
        )
    if not parts:
        if not hasattr(builtins, first):
            raise ConfigurationError(
                f"{option}: Python has no exception of this name; write MODULE.CLASS for one of a module, such as orders.{first}"
            )
        return getattr(builtins, first)
    found, at = _imported(first, option), first
    for part in parts:
        outer, at = at, f"{at}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif hasattr(found, "__path__") and part != parts[-1]:
            found = _imported(at, option)
        else:
            raise ConfigurationError(f"{option}: {outer} has no {part}")
    return found


def _rejecting(options: ConsumerOptions, classes: tuple[type[Exception], ...]) -> ConsumerOptions:
    try:
        return dataclasses.replace(options, reject_on=classes)
    except ValueError as error:
        raise ConfigurationError(f"--reject-on: {error}") from error


def _imported(name: str, option: str) -> Any:
    """Import a module; the current folder comes first. ``option`` names it in errors."""
    here = str(Path.cwd())
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"{option}: there is no module {name}: it is looked for in {here}, then where Python looks"
                f"{_hidden(name.partition('.')[0], here)}"
            ) from error
        raise ConfigurationError(
            f"{option}: {name} needs {error.name}, which is missing{_where(error)}"
        ) from error
    except Exception as error:
        raise ConfigurationError(f"{option}: {name} does not load: {error!r}{_where(error)}") from error


def _hidden(package: str, here: str) -> str:
    """Return a hint if Python prefers a regular package of the same name to a folder without ``__init__.py``."""
    taken = getattr(sys.modules.get(package), "__file__", None)
    folder = Path(here) / package
    if taken is None or not folder.is_dir() or (folder / "__init__.py").exists():
        return ""
    return f". {folder} has no __init__.py, so Python takes {taken} instead: add one to yours"


def _where(error: BaseException) -> str:
    """Return the last executed line of the user's own code. Later frames belong to Python or a library."""
    if isinstance(error, SyntaxError):
        return ""  # the error itself names the place
    libraries = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
    frames = [
        frame_summary
        # The first frame belongs to this module.
        for frame_summary in traceback.extract_tb(error.__traceback__)[1:]
        if not frame_summary.filename.startswith((*libraries, "<frozen"))
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
