"""A run: what it covers, its frames and evidence, its judgement, and what it leaves to the next one."""
