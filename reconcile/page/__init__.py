"""The report page, and all that is shown to a person."""
