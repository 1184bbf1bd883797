"""Style and script of the pages of workers and consumers, and the headers that allow only these."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

STYLE: Final = (files(__name__) / "style.css").read_text("utf-8")
"""Style for light and dark colour schemes, and for any width."""
SCRIPT: Final = (files(__name__) / "refresh.js").read_text("utf-8")
"""Script that refreshes the element ``all`` of the page. The page also needs the elements ``stale`` and ``pause``."""


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src {_hashed(STYLE)}; script-src {_hashed(SCRIPT)}; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of a response with a page. The page contains the style and the script inline and unchanged."""
