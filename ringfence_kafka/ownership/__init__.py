"""State and task of a partition that is assigned, suspended, drained or lost."""
