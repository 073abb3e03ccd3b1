"""Selectors: one evaluation over the stored properties of a message."""

import pytest

from rmq.filters.sql import compile_selector

PROPERTIES = {
    "KEYS": "order-1234",
    "UNIQ_KEY": "7F0000010B2C18B4AAC2133C6F3C0000",
    "TAGS": "paid",
    "amount": "250",
    "region": "eu",
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "CLUSTER": "DefaultCluster",
}
TEXT = "".join(f"{k}\x01{v}\x02" for k, v in PROPERTIES.items()).encode()
EXPRESSIONS = {
    "one": "amount > 300",
    "two": "amount > 100 AND region = 'us'",
    "double": "amount > 300.5",
    "many": "region IN ('us', 'cn', 'br', 'pl') OR amount BETWEEN 1 AND 9"
    " OR missing IS NOT NULL OR KEYS STARTSWITH 'bill'",
}


@pytest.mark.parametrize("name", sorted(EXPRESSIONS))
def bench_no_match(benchmark, name):
    """A thousand evaluations, with a call of Python for each."""
    matches = compile_selector(EXPRESSIONS[name]).matches

    def run():
        for _ in range(1_000):
            matches(TEXT)

    benchmark(run)
    assert not matches(TEXT)
