"""Random histories beside a model: a quarter of the examples in `make test`, all in `make long`."""

import os
from typing import Final

VARIABLE: Final = "RINGFENCE_EXAMPLES"


def examples(most: int) -> int:
    """Return the number of examples of a test that finds bugs with fewer of them."""
    return most if os.environ.get(VARIABLE) == "all" else most // 4
