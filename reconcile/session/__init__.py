"""The Spark session: JVM, master, executors, and shutdown."""
