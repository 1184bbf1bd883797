"""Settings of all property tests: the same examples in each run, and no deadline on a busy machine."""

from hypothesis import settings

from tests.property import examples

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=examples(100))
settings.load_profile("fixed")
