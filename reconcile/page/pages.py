"""The page beside the numbers, where the driver has what it is drawn with."""

import importlib
import sys
from typing import Final

from reconcile.page.report_data import Figures
from reconcile.spark.files import Files

PAGE: Final = "report.html"


def written(figures: Figures) -> str | None:
    """The page as HTML; None, and a line on stderr that says why, where it cannot be drawn.

    A cluster's driver needs nothing beside PySpark to judge a night: matplotlib and jinja2 are for the page alone. And whatever
    happens in drawing, the night is judged.
    """
    try:
        page = importlib.import_module("reconcile.page.document")
    except ImportError as error:
        sys.stderr.write(f"no report.html: {error}: install it where the driver runs\n")
        return None
    try:
        return str(page.render(figures))
    except Exception as error:
        sys.stderr.write(f"no report.html: drawing it failed ({error!r}); figures.json has its numbers\n")
        return None


def put(files: Files, page: str | None) -> None:
    """Into a folder that may hold that of an earlier run, which is none of this one."""
    if page is None:
        files.delete(PAGE)
    else:
        files.write(PAGE, page)
