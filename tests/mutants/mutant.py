"""A deliberate bug: what is changed in the sources, and which test says so."""

from dataclasses import dataclass
from pathlib import Path


class PatchError(Exception):
    """A patch no longer fits the sources."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One change of one file. The old text must stand there exactly once."""

    file: str
    """From the project's root."""
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug that somebody could write, and the test that would not let it pass."""

    name: str
    why: str
    """Damage of the bug, in one sentence."""
    patches: Patch | tuple[Patch, ...]
    test: str
    also: tuple[str, ...] = ()
    """More tests that fail, each by itself."""
    native: bool = False
    """It is in the core, or in what only works with it: built anew, and run on. All others are run in Python alone."""

    @property
    def tests(self) -> tuple[str, ...]:
        return (self.test, *self.also)

    def sources(self, root: Path) -> dict[str, str]:
        """Return the changed files, by their path from the root. Raises PatchError unless an old text stands there exactly once."""
        changed: dict[str, str] = {}
        for patch in (self.patches,) if isinstance(self.patches, Patch) else self.patches:
            path = root / patch.file
            if not path.is_file():
                raise PatchError(f"{self.name}: {patch.file} does not exist: adapt the patch")
            source = changed.get(patch.file) or path.read_text("utf-8")
            if (count := source.count(patch.old)) != 1:
                raise PatchError(
                    f"{self.name}: stands {count} times in {patch.file}, not once: adapt the patch:\n{patch.old}"
                )
            changed[patch.file] = source.replace(patch.old, patch.new)
        return changed

    def apply(self, root: Path) -> None:
        for file, source in self.sources(root).items():
            (root / file).write_text(source, "utf-8")
