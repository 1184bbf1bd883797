"""Run a program to its end, within a limit."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.support.checkout import ROOT

_LINES_SHOWN: Final = 30


class CommandError(Exception):
    """A program failed, or took longer than its limit."""

    def __init__(self, command: Sequence[str], what: str, output: str) -> None:
        last = "\n".join(f"    {line}" for line in output.strip().splitlines()[-_LINES_SHOWN:])
        super().__init__(f"{' '.join(command)}\n    {what}{': its last lines:' if last else ''}\n{last}")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    code: int
    output: str
    errors: str
    """Its standard error, to which engines write warnings."""

    @property
    def everything(self) -> str:
        return "\n".join(name.strip() for name in (self.output, self.errors) if name.strip())


def attempt(
    command: Sequence[str],
    *,
    limit_s: float,
    given: str | bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program and return how it ended, whatever its exit code. Raises CommandError if it took longer than the limit."""
    try:
        done = subprocess.run(
            command, input=given.encode() if isinstance(given, str) else given, capture_output=True,
            env={**os.environ, **(environment or {})}, cwd=ROOT, timeout=limit_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        left = _ended(-1, error.stdout, error.stderr)
        raise CommandError(command, f"did not end within {limit_s:.0f} s", left.everything) from error
    return _ended(done.returncode, done.stdout, done.stderr)


def _ended(code: int, output: bytes | None, errors: bytes | None) -> Ended:
    return Ended(code, (output or b"").decode(errors="replace"), (errors or b"").decode(errors="replace"))


def run(command: Sequence[str], **options: Any) -> str:
    """Run a program that must succeed, with the options of :func:`attempt`; return its standard output."""
    ended = attempt(command, **options)
    if ended.code != 0:
        raise CommandError(command, f"ended with {ended.code}", ended.everything)
    return ended.output
