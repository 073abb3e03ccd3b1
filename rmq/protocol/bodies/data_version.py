"""DataVersion: which of two tables is newer, and whether they are equal."""

from rmq.protocol.bodies import Body
from rmq.protocol.headers import I64


class DataVersion(Body, kw_only=True):
    """The version of a table; equal if all three numbers are equal."""

    state_version: I64 = 0
    timestamp: I64 = 0
    counter: I64 = 0
