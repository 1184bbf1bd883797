"""A handler module that imports a missing module."""

import something_that_nobody_has  # type: ignore[import-not-found] # noqa: F401
