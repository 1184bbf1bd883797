"""Measure the project's prose, and end with 1 if more is hard to read than a limit allows. ``make lint`` runs it."""

import subprocess
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Final

from tests.prose import faults, sentences
from tests.prose.sentences import Sentence
from tests.support.checkout import ROOT, files

LIMITS: Final = {"documents and messages": 1.4, "docstrings and comments": 0.8}
"""Largest shares of sentences with a fault, in percent. They may be lowered, and are not raised."""
TIGHTER: Final = 0.5
"""A share that lies this far below its limit allows a lower one."""
SINCE: Final = "2026-11-28T01:00:00Z"
"""Subjects of earlier commits are not checked. A day needs no tag, and no commit that a shallow clone lacks."""
UNREAD: Final = ("tests", "bench")
"""Folders whose messages only developers read."""


def measure(kind: str, found: Iterable[Sentence], limit: float) -> bool:
    """Print the share of sentences with faults, and the worst ones; return whether the limit holds."""
    judged = [(item, faults.of_sentence(item.text)) for item in found]
    faulty = [(item, why) for item, why in judged if why]
    faulty.sort(key=lambda pair: (-len(pair[1]), -len(pair[0].text)))
    share = 100 * len(faulty) / max(len(judged), 1)
    note = f"; lower the limit to {share + TIGHTER / 2:.1f}" if share < limit - TIGHTER else ""
    print(f"{kind}: {share:.1f} % of {len(judged):,} sentences are hard to read, limit {limit} %{note}")
    for item, why in faulty[: 3 if share <= limit else 20]:
        print(f"  {item.path.relative_to(ROOT)}:{item.line}: {', '.join(why)}: {item.text[:160]}")
    return share <= limit


def check_subjects(folder: Path) -> bool:
    """Print subjects that are too long or not imperative, of a repository's commits; a plain folder has none."""
    if not (folder / ".git").exists():
        return True
    command = ["git", "log", "--no-merges", "--format=%s", f"--since={SINCE}"]
    log = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    faulty = [(line, why) for line in log.splitlines() if (why := faults.of_subject(line))]
    for line, why in faulty:
        print(f"subject of a commit: {', '.join(why)}: {line}")
    return not faulty


def main() -> int:
    """Measure everything; return the exit code."""
    code = [ROOT / name for name in files("*.py")]
    read = [path for path in code if path.relative_to(ROOT).parts[0] not in UNREAD]
    pages = (sentences.of_markdown(ROOT / name) for name in files("*.md"))
    texts = {
        "documents and messages": chain.from_iterable([*pages, *map(sentences.of_messages, read)]),
        "docstrings and comments": chain.from_iterable(map(sentences.of_code, code)),
    }
    held = [measure(kind, found, LIMITS[kind]) for kind, found in texts.items()]
    return 0 if all([*held, check_subjects(ROOT)]) else 1


if __name__ == "__main__":
    sys.exit(main())
