"""Shared support of tests: a lane under the test's own control, and reading and writing topics."""
