"""Programs: the command line, the processes of workers and bridges, the embedded broker, the demo."""
