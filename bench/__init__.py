"""The benchmark: Ringfence beside a plain Faust agent and beside a bare transactional copy. See README.md."""
