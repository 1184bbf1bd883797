"""Read accepted messages with Spark Structured Streaming: ``python spark_reader.py``."""

import os

from pyspark.sql import SparkSession, functions

spark = (
    SparkSession.builder.appName("spark-reader")
    .config("spark.jars.packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", os.environ.get("KAFKA", "127.0.0.1:9092"))
    .option("subscribe", os.environ.get("TOPIC", "orders.accepted"))
    .option("startingOffsets", "earliest")
    .option("includeHeaders", "true")
    .option("kafka.isolation.level", "read_committed")
    .load()
)
source = functions.filter("headers", lambda header: header["key"] == "_RF_SOURCE")[0]["value"]
lines = records.select(
    functions.concat_ws(" ", source.cast("string"), functions.col("value").cast("string")).alias("line")
)
lines.writeStream.foreachBatch(
    lambda batch, _: [print(row.line, flush=True) for row in batch.collect()]
).start().awaitTermination()
