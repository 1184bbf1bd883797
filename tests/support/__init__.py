"""What tests share: a lane under the test's own control, and reading and writing topics."""
