"""The data source `rmq`: batch and stream readers and writers for options.

Spark imports this module each time it looks up a source. So modules that need pyarrow
are imported on use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from rmq.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from rmq_spark.live.settings import LiveReadSettings
    from rmq_spark.options import Options
    from rmq_spark.segments.reader import ReadSettings
    from rmq_spark.segments.schema import Column
    from rmq_spark.sink.task import SinkTask


class RmqDataSource(DataSource):
    """`spark.read.format("rmq")` and `spark.readStream.format("rmq")`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "rmq"

    def schema(self) -> str:
        """Return the columns that the options select."""
        from rmq_spark.segments.schema import columns_of, spark_schema

        return spark_schema(columns_of(self._parse_options()))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create a batch reader; with `pushFilters` one that accepts filters."""
        options = self._parse_options()
        if options.is_live:
            from rmq_spark.live.source import LiveReader

            return LiveReader(options, _live_settings(options, schema))
        from rmq_spark.segments.source import FilteringReader, SegmentReader

        kind = FilteringReader if options["pushFilters"] else SegmentReader
        return kind(options, _read_settings(options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create a stream reader."""
        options = self._parse_options()
        if options.is_live:
            from rmq_spark.live.source import LiveStreamReader

            return LiveStreamReader(options, _live_settings(options, schema))
        from rmq_spark.segments.source import SegmentStreamReader

        return SegmentStreamReader(options, _read_settings(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create a batch writer."""
        from rmq_spark.sink.writer import BatchWriter

        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use mode append")
        return BatchWriter(self._create_sink_task(schema))

    def streamWriter(
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Create a stream writer."""
        from rmq_spark.sink.writer import StreamWriter

        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use outputMode append")
        return StreamWriter(self._create_sink_task(schema))

    def _create_sink_task(self, schema: StructType) -> SinkTask:
        from rmq_spark.sink.options import SinkOptions
        from rmq_spark.sink.task import sink_task

        fields = [(field.name, field.dataType.simpleString()) for field in schema]
        return sink_task(SinkOptions(dict(self.options)), fields)

    def _parse_options(self) -> Options:
        from rmq_spark.options import Options

        return Options(dict(self.options))


def _columns(options: Options, schema: StructType) -> tuple[Column, ...]:
    from rmq_spark.segments.schema import columns_of_schema

    wanted = [(field.name, field.dataType.simpleString()) for field in schema]
    return columns_of_schema(options, wanted)


def _read_settings(options: Options, schema: StructType) -> ReadSettings:
    from rmq_spark.segments.reader import read_settings

    return read_settings(options, _columns(options, schema))


def _live_settings(options: Options, schema: StructType) -> LiveReadSettings:
    from rmq_spark.live.settings import live_read_settings

    return live_read_settings(options, _columns(options, schema))
