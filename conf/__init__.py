"""The default configuration file, and the Java that the broker and Spark run on."""
