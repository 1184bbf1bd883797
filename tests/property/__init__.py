"""Random histories beside a model: a quarter of the examples in `make test`, all in `make long`.

The profile of all property tests is set here, before their modules are imported. Each run has the same examples, and no limit of time.
"""

import os
from typing import Final

from hypothesis import HealthCheck, settings

VARIABLE: Final = "RINGFENCE_EXAMPLES"


def examples(most: int) -> int:
    """Return the number of examples of a test that finds bugs with fewer of them."""
    return most if os.environ.get(VARIABLE) == "all" else most // 4


settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")
