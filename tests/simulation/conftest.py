"""Fixtures of the tests of simulated worlds."""

import gc
from collections.abc import Iterator

import pytest

from tests.simulator.patches import simulated
from tests.simulator.runner import Runner


@pytest.fixture
def runner() -> Iterator[Runner]:
    with simulated():
        gc.disable()
        try:
            yield Runner()
        finally:
            gc.enable()
