"""Faults as objects: one concern a file. Tests strike with one; a longer run may strike with many."""

from tests.harness.nemeses.nemesis import Nemesis, striking

__all__ = ["Nemesis", "striking"]
