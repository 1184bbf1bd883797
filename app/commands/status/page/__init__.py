"""The worker's page: ``ringfence status`` as one HTML document without outside assets. Pure.

Its Content-Security-Policy allows its own style and script alone. The script only renews the page every few seconds. Jinja escapes all data.
"""

import base64
import functools
import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template

from app.commands.status import formatting, model
from app.commands.status.model import Finding, Status
from ringfence_kafka.escaping import shortened

_STYLE: Final = (files(__name__) / "status.css").read_text("utf-8")
_SCRIPT: Final = (files(__name__) / "status.js").read_text("utf-8")
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
    "share": formatting.share,
    "shortened": lambda text: shortened(text, "/status has all"),
}


@functools.cache
def _template() -> Template:
    """Compile the page when it is first asked for: most processes show none."""
    return _ENVIRONMENT.from_string((files(__name__) / "status.html").read_text("utf-8"))


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_hashed(_STYLE)}; script-src {_hashed(_SCRIPT)}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


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
        style=_STYLE, script=_SCRIPT, OPEN=model.OPEN, UNKNOWN=model.UNKNOWN,
    )  # fmt: skip
