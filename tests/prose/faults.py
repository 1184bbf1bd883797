"""Faults that make a sentence or a subject hard to read."""

import re
from typing import Final

WORDS_MAX: Final = 25
RELATIVES_MAX: Final = 2
SUBJECT_MAX: Final = 72
_OPENING: Final = re.compile(
    r"(?:Of|What|Whatever|Who|Whoever|Whose|Where|Wherever|So (?:many|much|long|old|few)|That of|Those of|As is)\b(?!.*\?)"
)
_RELATIVE: Final = re.compile(
    r"\b(?:that|which|who|whom|whose|what|whatever|whoever|where|wherever)\b", re.IGNORECASE
)
_NO_VERB: Final = re.compile(
    r"(?:an?|the|what|who|when|where|how|of|in|on|at|to|for|from|by|with|no|each|every|all|its?|this|that|these|those|if|as|"
    r"before|after|while|some|is|are|was|more|news?)$|.*(?:ed|ing|s)$"
)
_VERB: Final = re.compile(r".*(?:eed|ss)$|bring|embed|focus|ping|ring|shed|string|swing|spring|wring$")


def of_sentence(text: str) -> list[str]:
    """Name the faults of a sentence."""
    found = []
    if _OPENING.match(text):
        found.append("opens with a relative")
    if (words := len(text.split())) > WORDS_MAX:
        found.append(f"{words} words")
    if (relatives := len(_RELATIVE.findall(text))) > RELATIVES_MAX:
        found.append(f"{relatives} relatives")
    return found


def of_subject(text: str) -> list[str]:
    """Name the faults of a commit's subject: its length, and a first word that is no imperative."""
    first = text.split(maxsplit=1)[0].lower()
    found = [f"{len(text)} characters"] if len(text) > SUBJECT_MAX else []
    if _NO_VERB.match(first) and not _VERB.match(first):
        found.append("is not imperative")
    return found
