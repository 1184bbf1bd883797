"""Programs: the command line, worker and bridge processes, the embedded broker, the demo."""
