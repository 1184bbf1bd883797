"""The report page, and all other output for a person."""

from typing import Final

PAGE: Final = "report.html"
"""Name of a report's file."""
