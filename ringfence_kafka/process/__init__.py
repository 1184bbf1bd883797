"""Parts of every process: command line, signals, logs, memory."""
