"""The parts of docs/sizing.md that come from the verb: ``python -m app.plan.sizing`` writes them, and a test holds them."""

import re
import sys
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from app.plan.measured import table

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "sizing.md"
_SHOWN: Final = re.compile(
    r"(?<=```console\n\$ )(ringfence plan [^\n]*)\n.*?(?=^```)", re.DOTALL | re.MULTILINE
)
_MEASURED: Final = re.compile(r"(?<=<!-- measured -->\n).*?(?=<!-- end -->)", re.DOTALL)


def commands() -> list[str]:
    """Those that it shows."""
    return _SHOWN.findall(FILE.read_text("utf-8"))


def renewed(text: str) -> str:
    """The document with what its commands say now, and the table of what was measured."""
    text = _SHOWN.sub(lambda found: f"{found[1]}\n{_said(found[1])}", text)
    return _MEASURED.sub(lambda _: _table(), text)


def _said(command: str) -> str:
    from app.verbs.plan import plan  # noqa: PLC0415 - the verb's own module loads what the command line needs

    done = CliRunner().invoke(plan, command.split()[2:], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output.strip() + "\n"


def _table() -> str:
    lines = ["| what | figure | how |", "|---|---|---|"]
    lines += [f"| {each.what} | {_figure(each.value)} {each.unit} | {each.how} |" for each in table()]
    return "\n".join(lines) + "\n"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"  # noqa: PLR2004 - beyond it digits behind the point say nothing


if __name__ == "__main__":
    FILE.write_text(renewed(FILE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"{FILE}\n")
