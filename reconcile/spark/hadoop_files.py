"""Small files wherever Hadoop's file systems reach."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reconcile.session.spark_errors import SPARK
from reconcile.spark.files import LocalFiles, unreadable, unusable


class HadoopFiles:
    """Wherever Hadoop's file systems reach: ``hdfs://``, ``s3a://``, the cluster's default."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Raises PrerequisiteError: it cannot be used."""
        self._root = root.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._io: Any = jvm.org.apache.commons.io.IOUtils
        try:
            self._system: Any = self._path(self._root).getFileSystem(configuration)
            if self._system.getScheme() == "file" and "://" not in root:
                self._root = str(Path(root).absolute())  # the JVM works in a folder of its own
            self._system.mkdirs(self._path(self._root))
        except Exception as error:
            raise unusable(root, _cause(error)) from error

    @property
    def root(self) -> str:
        """The folder, as a person names it."""
        return self._root

    def at(self, *parts: str) -> str:
        """The whole path, as Spark takes it."""
        return "/".join((self._root, *parts))

    def names(self, folder: str) -> list[str]:
        """What is in a folder; nothing if it does not exist."""
        path = self._path(self.at(folder))
        if not self._system.exists(path):
            return []
        return sorted(item.getPath().getName() for item in self._system.listStatus(path))

    def read(self, name: str) -> str:
        """A file's text."""
        try:
            stream = self._system.open(self._path(self.at(name)))
            try:
                return str(self._io.toString(stream, "UTF-8"))
            finally:
                stream.close()
        except SPARK as error:
            raise unreadable(self.at(name), _cause(error)) from error

    def write(self, name: str, text: str) -> None:
        """Make a file: it is there whole, or not at all."""
        target, made = self._path(self.at(name)), self._path(self.at(f"{name}.part"))
        try:
            stream = self._system.create(made, True)
            try:
                stream.write(bytearray(text, "utf-8"))
            finally:
                stream.close()
            self._system.delete(target, False)
            renamed = self._system.rename(made, target)
        except SPARK as error:
            raise unusable(self.at(name), _cause(error)) from error
        if not renamed:
            raise unusable(self.at(name), "the file cannot be renamed")

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it."""
        try:
            self._system.delete(self._path(self.at(name)), True)
        except SPARK as error:
            raise unusable(self.at(name), _cause(error)) from error

    def remove(self, name: str) -> None:
        """A file, which may be missing; never a folder."""
        path = self._path(self.at(name))
        try:
            if self._system.exists(path) and self._system.getFileStatus(path).isDirectory():
                raise unusable(self.at(name), "a folder")
            self._system.delete(path, False)
        except SPARK as error:
            raise unusable(self.at(name), _cause(error)) from error

    def settle(self, folder: str) -> None:
        """Such file systems do it by themselves."""

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the folder if it is one of this machine, or mounted here. Elsewhere the scheduler allows one run at a time.

        Raises:
            BusyError: another run works in it.
        """
        if self._system.getScheme() != "file":
            yield
            return
        with LocalFiles(self._path(self._root).toUri().getPath()).locked():
            yield


def _cause(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString()) if java is not None else str(error)
