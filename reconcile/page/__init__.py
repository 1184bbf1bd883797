"""The report page, and all other output for a person."""
