"""The benchmark: Ringfence, at home and forwarding, beside a plain Faust agent and a bare transactional copy. See README.md."""
