"""Files of a run's data frames."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from reconcile.run.frames.frames import Frames
from reconcile.run.history.layout import SCRATCH, results_folder


@dataclass(frozen=True, slots=True)
class Workspace:
    """Access to the files of one run."""

    frames: Frames
    number: int

    def scratch(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a frame to scratch files, and return a frame that reads them column by column."""
        path = self.frames.files.at(SCRATCH, name)
        frame.write.mode("overwrite").parquet(path)
        return self.frames.spark.read.schema(frame.schema).parquet(path)

    def write_results(self, frame: DataFrame, name: str, mode: str = "overwrite") -> None:
        """Write a frame to the results of the run."""
        frame.write.mode(mode).parquet(self.frames.files.at(results_folder(self.number), name))

    def read_results(self, name: str, schema: StructType) -> DataFrame:
        """Read a frame from the results of the run."""
        return self.frames.spark.read.schema(schema).parquet(
            self.frames.files.at(results_folder(self.number), name)
        )
