"""The text format: escaping, order of labels, empty families, limits."""

from itertools import count

import trio

from rmq.observe.metrics import exposition
from rmq.observe.metrics.exposition import Family, Sample, expose


async def text(*families, **labels):
    return (await expose(families, labels)).decode()


async def test_a_family_with_its_samples():
    family = Family(
        "x_total", "counter", "things", [Sample(3, {"b": "1", "a": "2"}), Sample(0.5)]
    )
    assert await text(family, node="n") == (
        "# HELP x_total things\n# TYPE x_total counter\n"
        'x_total{a="2",b="1",node="n"} 3.0\nx_total{node="n"} 0.5\n'
    )


async def test_values_of_labels_are_escaped():
    sample = Sample(True, {"t": 'a"b\\c\nd'})
    assert 'x{t="a\\"b\\\\c\\nd"} 1.0' in await text(Family("x", "gauge", "", [sample]))


async def test_a_family_without_samples_is_left_out():
    full = Family("y", "gauge", "", [Sample(1)])
    assert "# TYPE x" not in await text(Family("x", "gauge", "", []), full)


async def test_other_tasks_run_before_a_family_and_between_samples():
    order = []

    def families():
        for _ in range(3):
            order.append("work")
            yield None
        yield Family("a", "gauge", "text", samples())

    def samples():
        for _ in range(3):
            order.append("work")
            yield None
        yield Sample(1, {})

    async def other():
        for _ in range(6):
            order.append("other")
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        text = await expose(families(), {})
    assert text == b"# HELP a text\n# TYPE a gauge\na{} 1.0\n"
    assert order.count("other") == order.count("work") == 6
    assert "work, work, work" not in ", ".join(order)


async def test_samples_of_a_family_are_bounded(monkeypatch):
    monkeypatch.setattr(exposition, "MAX_SAMPLES", 120)
    endless = (Sample(n, {"n": str(n)}) for n in count())
    lines = (await text(Family("x", "gauge", "", endless))).splitlines()
    assert len(lines) == 2 + 120
