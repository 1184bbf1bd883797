"""The worker's page: what ``ringfence status`` says, in a browser. Pure: a status comes in, HTML goes out.

It is one document without outside assets, and its policy (Content-Security-Policy) allows nothing but its own style and script. All is
there without the script too, which only brings it anew every few seconds. Whatever comes from data is escaped by autoescape.
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
    "rate": formatting.rate,
    "share": formatting.share,
    "shortened": lambda text: shortened(text, "/status has all"),
}


@functools.cache
def _template() -> Template:
    """Compiled when somebody looks: most processes show no page."""
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
    """The document.

    Args:
        status: None = the brokers do not tell; then ``fault`` says why, and of the lanes only this worker's own are known.
        found: What is to be said of it.
        worker: Whose page it is.
        own: Its lanes, as its ``/health`` has them.
        fault: Why there is no status.
    """
    return _template().render(
        status=status, found=found, standing=sum(finding.stands for finding in found), worker=worker, own=own, fault=fault,
        style=_STYLE, script=_SCRIPT, OPEN=model.OPEN, UNKNOWN=model.UNKNOWN,
    )  # fmt: skip
