"""Small files in Hadoop's file systems."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reconcile.session.spark_errors import SPARK
from reconcile.spark.files import LocalFiles, unreadable, unusable


class HadoopFiles:
    """Files in ``hdfs://``, ``s3a://``, or the cluster's default file system."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Create the folder. Raises PrerequisiteError if it cannot be used."""
        self.root = root.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._io: Any = jvm.org.apache.commons.io.IOUtils
        try:
            self._system: Any = self._path(self.root).getFileSystem(configuration)
            if self._system.getScheme() == "file" and "://" not in root:
                self.root = str(Path(root).absolute())  # the JVM has another working directory
            self._system.mkdirs(self._path(self.root))
        except Exception as error:
            raise unusable(root, _cause(error)) from error

    def at(self, *parts: str) -> str:
        """Return the full path for Spark."""
        return "/".join((self.root, *parts))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; empty if it does not exist."""
        path = self._path(self.at(folder))
        if not self._system.exists(path):
            return []
        return sorted(item.getPath().getName() for item in self._system.listStatus(path))

    def read_text(self, name: str) -> str:
        """Return the text of a file."""
        try:
            with contextlib.closing(self._system.open(self._path(self.at(name)))) as stream:
                return str(self._io.toString(stream, "UTF-8"))
        except SPARK as error:
            raise unreadable(self.at(name), _cause(error)) from error

    def write_text(self, name: str, text: str) -> None:
        """Write a file atomically."""
        with self._usable(name) as target:
            made = self._path(self.at(f"{name}.part"))
            with contextlib.closing(self._system.create(made, True)) as stream:
                stream.write(bytearray(text, "utf-8"))
            self._system.delete(target, False)
            if not self._system.rename(made, target):
                raise unusable(self.at(name), "the file cannot be renamed")

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content."""
        with self._usable(name) as path:
            self._system.delete(path, True)

    def remove(self, name: str) -> None:
        """Delete a file if it exists, but never a folder."""
        with self._usable(name) as path:
            if self._system.exists(path) and self._system.getFileStatus(path).isDirectory():
                raise unusable(self.at(name), "a folder")
            self._system.delete(path, False)

    @contextlib.contextmanager
    def _usable(self, name: str) -> Iterator[Any]:
        """Yield the path of a file. Raises PrerequisiteError if the file system refuses it."""
        try:
            yield self._path(self.at(name))
        except SPARK as error:
            raise unusable(self.at(name), _cause(error)) from error

    def sync(self, folder: str) -> None:
        """Do nothing: such file systems make data durable themselves."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a local folder. For other file systems the scheduler must start one run at a time."""
        if self._system.getScheme() != "file":
            yield
            return
        with LocalFiles(self._path(self.root).toUri().getPath()).locked():
            yield


def _cause(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString()) if java is not None else str(error)
