"""Writes the page, if the driver has the libraries for it."""

import importlib
import sys

from reconcile.page import PAGE
from reconcile.page.report_data import Figures
from reconcile.spark.files import Files


def written(figures: Figures) -> str | None:
    """Return the page as HTML; None if it cannot be drawn, with the reason on stderr.

    A cluster's driver needs only PySpark to judge a run; matplotlib and jinja2 are for the page. A problem in
    drawing does not stop the run.
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
    """Write the page, or delete the page of an earlier run."""
    if page is None:
        files.delete(PAGE)
    else:
        files.write_text(PAGE, page)
