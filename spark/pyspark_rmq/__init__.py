"""Found by Spark under the name `rmq`; nothing heavy is imported before it is used.

Spark imports every top-level module `pyspark_*` at its first look-up of a source.
"""

from rmq_spark.source import RmqDataSource as DefaultSource

__all__ = ["DefaultSource"]
