"""Pages of large tables: entries from an index on, in the order of their names."""

from collections.abc import Mapping
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

PAGE_SIZE: Final = 2_000
"""Number of entries of a page if the request does not set a size."""


def page(table: Mapping[str, T], first: int, count: int | None) -> dict[str, T]:
    """Return the entries from index `first` on."""
    start = max(0, first)
    size = PAGE_SIZE if count is None or count <= 0 else count
    assert size > 0, f"a page of {size} entries makes no progress"
    return {name: table[name] for name in islice(sorted(table), start, start + size)}
