"""Messages whose bodies become columns, some of which do not fit."""

from rmq_spark.export.body_schema import Bodies, parse_fields
from rmq_spark.export.manifest import Settings
from rmq_spark.segments.schema import EXPORTED
from tests.spark.stores import START_MS, Sent

COLUMNS = [name for name in EXPORTED if name != "body"]
FIELDS = "number bigint, sku string"


def settings_of(table_format="parquet", fields=FIELDS, broker="broker-a", **bodies):
    bodies = Bodies("json", parse_fields(fields), **({"max_bad": 1.0} | bodies))
    return Settings(
        broker, table_format, COLUMNS, "map", False, ["orders"], bodies, "messages"
    )


def is_bad(number):
    return number % 5 == 3


def sent(count, start=0):
    """Every fifth body does not fit; every second message is of another topic."""
    for i in range(start, start + count):
        body = b'{"number": "none"}' if is_bad(i) else b'{"number": %d, "sku": "s"}' % i
        keys = b"KEYS\1k%d\2" % i
        yield Sent(b"orders", i % 2, body, keys, START_MS + i)
        yield Sent(b"other", 0, body, keys, START_MS + i)
