"""Tag expressions: `*` matches every message, `a || b` matches messages with one of
these tags.

The broker compares the Java hash codes of tags in queue entries. The client compares
the tags themselves, so two tags with the same hash do no harm.
"""

from functools import lru_cache
from typing import Final

from rmq._fastpath.bytes.hashing import java_hash
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode

EVERYTHING: Final = "*"
MAX_TAGS: Final = 4_096
"""Limit of tags of one expression: each costs a comparison per entry of a scan."""

_SEPARATOR: Final = "||"
_CACHED_EXPRESSIONS: Final = 1_024


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the expression has tags, which is the default of old clients."""
    return not expression_type or expression_type == "TAG"


@lru_cache(_CACHED_EXPRESSIONS)
def tag_codes(expression: str | None) -> tuple[int, ...] | None:
    """Return the hash codes that an expression matches; None matches everything."""
    if not expression or expression == EVERYTHING:
        return None
    parts = expression.split(_SEPARATOR)
    if not any(parts) or len(parts) > MAX_TAGS:
        raise RequestRejected(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "parse the consumer's subscription failed",
        )
    return tuple({java_hash(tag) for part in parts if (tag := part.strip())})
