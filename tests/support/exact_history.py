"""The history of a run without a fault, which tests of the checker change."""

from tests.support.histories import A, B, C, accept, arrive, attempts, story

FIRST, SECOND, THIRD = arrive(0, A), arrive(1, B), arrive(2, C)
RESEND = arrive(3, A)
INPUTS = [FIRST, SECOND, THIRD, RESEND]
EXACT = story(INPUTS, accept(FIRST, SECOND, THIRD), sends=attempts(*INPUTS))
"""Each ID once, in order, unchanged; the duplicate send is dropped."""
