"""Where a night lays its frames down, and takes them up again."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from reconcile.run.frames.frames import Frames
from reconcile.run.history.history import SCRATCH, results_folder
from reconcile.spark.files import Files


@dataclass(frozen=True, slots=True)
class Workspace:
    """Of one night."""

    spark: SparkSession
    files: Files
    frames: Frames
    number: int

    def scratch(self, name: str, frame: DataFrame) -> DataFrame:
        """Kept in files until the run ends: what reads it later reads the columns that it needs."""
        path = self.files.at(SCRATCH, name)
        frame.write.mode("overwrite").parquet(path)
        return self.spark.read.schema(frame.schema).parquet(path)

    def write(self, frame: DataFrame, name: str, mode: str = "overwrite") -> None:
        """Among the night's results."""
        frame.write.mode(mode).parquet(self.files.at(results_folder(self.number), name))

    def read(self, name: str, schema: StructType) -> DataFrame:
        """What was written there."""
        return self.spark.read.schema(schema).parquet(self.files.at(results_folder(self.number), name))
