"""Tags codes, of ASCII and of other text."""

import pytest

from rmq._fastpath.bytes.hashing import tags_code


@pytest.mark.parametrize("tags", ["TagA", "x" * 40, "größe-Ü-日本"])
def bench_tags_code(benchmark, tags):
    benchmark(tags_code, tags)
