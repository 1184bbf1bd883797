"""Check of plain English: documents, messages, docstrings, comments, and subjects of commits."""
