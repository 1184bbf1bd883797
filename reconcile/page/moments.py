"""How long the stretches of time are in which records are counted. Pure."""

from typing import Final

SECOND_MS: Final = 1_000
DAY_MS: Final = 86_400 * SECOND_MS
MOMENTS_MAX: Final = 200
STEPS_MS: Final = tuple(each * SECOND_MS for each in (1, 10, 60, 300, 900, 3_600, 21_600, 86_400))
"""How long one may be; beyond the last, some days."""


def step_ms(first_ms: int, last_ms: int) -> int:
    """The shortest step of which :data:`MOMENTS_MAX` cover these times."""
    for step in STEPS_MS:
        if last_ms // step - first_ms // step < MOMENTS_MAX:
            return step
    return -(-(last_ms - first_ms) // (DAY_MS * (MOMENTS_MAX - 1))) * DAY_MS
