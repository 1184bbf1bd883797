"""The project's files and copies of them, from a repository or from an unpacked archive."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
IS_REPOSITORY: Final = (ROOT / ".git").exists()
_LEFTOVERS: Final = (
    "build", "data", "dist", "__pycache__", "*.egg-info", "*.so", ".venv*", ".*_cache", ".hypothesis",
)  # fmt: skip


def documents() -> list[str]:
    return files("*.md")


def files(pattern: str) -> list[str]:
    """Paths of the project's files whose names match, also of those that are not committed yet."""
    if IS_REPOSITORY:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return [line for line in listed.stdout.splitlines() if (ROOT / line).exists()]
    paths = (path.relative_to(ROOT) for path in ROOT.rglob(pattern))
    return sorted(str(path) for path in paths if not any(map(_is_left_over, path.parts)))


def _is_left_over(name: str) -> bool:
    return any(Path(name).match(leftover) for leftover in _LEFTOVERS)


def clone(folder: Path, umask: int = -1) -> Path:
    """Make a new folder a clone of the last commit; without a repository it is a copy of the tree."""
    if not IS_REPOSITORY:
        return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_LEFTOVERS)))
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True, umask=umask)
    return folder
