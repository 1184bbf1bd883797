"""What a process needs: command line, signals, logs, memory."""
