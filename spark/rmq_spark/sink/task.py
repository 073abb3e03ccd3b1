"""One task of the sink: sends its rows in frames until all are acknowledged.

This module needs no Spark.  Spark's task passes its batches and its name.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from rmq_spark.identity import identity_of
from rmq_spark.sink.columns import check_schema, sink_columns
from rmq_spark.sink.frames import BATCH_ROWS, FrameMaker, FrameSettings
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.sender import FrameSender, Routes, SendSettings


@dataclass(frozen=True)
class SinkTask:
    """How to send the rows of a task; pickled for the workers."""

    names: list[str]
    frames: FrameSettings
    settings: SendSettings
    has_keys: bool

    def write(self, batches: Iterable[pa.RecordBatch], job: str, partition: int) -> int:
        """Send the rows of a task; returns their number when all are acknowledged."""
        routes = Routes(self.settings)
        sender = FrameSender(self.settings, routes, first_queue=partition)
        task = task_digits(f"{job}|{partition}") if self.has_keys else None
        maker = FrameMaker(self.frames, routes.queues_of, task)
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    part = batch.slice(start, BATCH_ROWS)
                    for frame in maker.make_frames(*sink_columns(self.names, part)):
                        sender.send(frame)
            sender.finish()
        finally:
            sender.close()
            routes.close()
        return sender.rows


def task_digits(place: str) -> bytes:
    """Return the first 20 digits of row keys: a hash of `query|batch|partition`."""
    return hashlib.sha256(place.encode()).hexdigest()[:20].upper().encode()


def sink_task(options: SinkOptions, fields: list[tuple[str, str]]) -> SinkTask:
    """Return the task that the options describe, for columns of (name, Spark type)."""
    names = check_schema(fields, options["topic"])
    return SinkTask(
        names,
        FrameSettings(
            options["topic"] or "",
            options["batchBytes"],
            options["maxMessageSize"],
            options["compressThreshold"],
            options["badRows"],
        ),
        SendSettings(
            options["nameServer"],
            identity_of(options),
            options["producerGroup"],
            options["sendTimeoutMs"],
            options["retries"],
            options["maxInFlight"],
            options["ackPolicy"] == "durable",
        ),
        options["dedupKey"] == "row",
    )
