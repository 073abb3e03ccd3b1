"""32 records as messages of a receive."""

import pytest

from tests.plugins.grpc.test_compiled_grpc_messages import compiled, record

PROPERTIES = "colour\x01blue\x02UNIQ_KEY\x01" + "A" * 34 + "\x02TAGS\x01TagA\x02"


@pytest.mark.parametrize("size", [128, 4096])
def bench_messages(benchmark, size):
    data = record(PROPERTIES, body=bytes(size)) * 32
    found = benchmark(compiled, data)
    assert all(message is not None for _, message, _, _ in found)
