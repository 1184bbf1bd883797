"""The report page, and other output for people."""

from typing import Final

PAGE: Final = "report.html"
"""File name of a report page."""
