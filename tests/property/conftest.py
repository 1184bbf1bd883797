"""Settings of all property tests: the same examples in each run, and no deadline on a busy machine."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.load_profile("fixed")
