"""SQL92: a predicate over stored records with their properties."""

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq.filters.sql import compile_selector
from rmq_plugins.consume.filters import matching_records

EXPRESSION = "amount > 100 AND region = 'eu'"
PROPERTIES = {
    "KEYS": "order-1234",
    "UNIQ_KEY": "7F0000010B2C18B4AAC2133C6F3C0000",
    "TAGS": "paid",
    "amount": "250",
    "region": "eu",
}


def bench_stored_records(benchmark, tmp_path):
    """A thousand records of 128 bytes with five properties."""
    file = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    file.allocate(file.size)
    text = "".join(f"{k}\x01{v}\x02" for k, v in PROPERTIES.items()).encode()
    encoder = RecordEncoder(bytes(8))
    for i in range(1_000):
        at = encoder.staged_size
        encoder.stage(b"t", 0, i, at, 0, 0, 1, bytes(8), 2, 0, 0, bytes(128), text)
    size = encoder.staged_size
    encoder.commit(file, use_pwrite=True)
    body = (tmp_path / "log").read_bytes()[:size]
    matches = compile_selector(EXPRESSION).matches
    found = benchmark(lambda: list(matching_records(body, matches)))
    assert len(found) == 1_000
