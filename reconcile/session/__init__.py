"""The Spark session: its JVM, its master, its executors, and its end."""
