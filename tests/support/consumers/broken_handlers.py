"""A handler's module that needs what is not there."""

import something_that_nobody_has  # type: ignore[import-not-found] # noqa: F401
