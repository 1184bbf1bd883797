"""Settings of all property tests: the same examples in each run, and no limit of time on a busy machine."""

from hypothesis import HealthCheck, settings

from tests.property import examples

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")
