"""The worker's page: ``ringfence status`` as one HTML document without outside assets. Pure.

Its Content-Security-Policy allows its own style and script alone. The script only renews the page every few seconds. Jinja escapes all data.
"""

import functools
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template

from app.commands.status import formatting, model
from app.commands.status.model import Finding, Status
from ringfence_kafka.escaping import shortened
from ringfence_kafka.page import SCRIPT, STYLE

_ENVIRONMENT: Final = Environment(
    autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_ENVIRONMENT.filters |= {
    "age": formatting.age,
    "lanes_open": formatting.lanes_open,
    "memory": formatting.memory,
    "number": formatting.number,
    "partitions": formatting.partitions,
    "rate": formatting.rate,
    "run_text": formatting.run_text,
    "share": formatting.share,
    "shortened": lambda text: shortened(text, "/status has all"),
}


@functools.cache
def _template() -> Template:
    """Compile the page when it is first asked for: most processes show none."""
    return _ENVIRONMENT.from_string((files(__name__) / "status.html").read_text("utf-8"))


def render(
    status: Status | None, found: Sequence[Finding], worker: str, own: Mapping[str, Any], fault: str = ""
) -> str:
    """Return the document.

    Args:
        status: None = brokers do not answer, so only this worker's own lanes are known.
        found: The findings.
        worker: The worker that shows the page.
        own: Its lanes from its ``/health``.
        fault: Reason for a missing status.
    """
    return _template().render(
        status=status, found=found, standing=sum(finding.stands for finding in found), worker=worker, own=own, fault=fault,
        style=STYLE, script=SCRIPT, OPEN=model.OPEN, UNKNOWN=model.UNKNOWN,
    )  # fmt: skip
