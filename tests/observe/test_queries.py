"""Lists: the wanted part in the wanted order, in turns."""

import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq.observe import queries
from rmq.observe.queries import SORTED_AT_ONCE, ListQuery
from rmq.remoting import turns
from rmq.remoting.turns import TurnTaker

NAMES = st.lists(st.text("abc", min_size=1, max_size=4), unique=True, max_size=40)


def cut(wanted, found):
    async def run():
        return await wanted.select(found, TurnTaker(trio.lowlevel.checkpoint))

    return trio.run(run)


@given(NAMES, st.randoms(), st.integers(0, 30), st.integers(1, 9), st.booleans())
def test_the_part_is_that_of_the_whole_order(names, chance, start, count, is_up):
    queries.SORTED_AT_ONCE = 7
    try:
        query = {"from": str(start), "n": str(count), "up": "1" if is_up else ""}
        found = [(chance.choice((0, 0, 1, 2, 3.5)), name) for name in names]
        part = cut(ListQuery(query, ("in", "name")), found)
        busy = sorted((pair for pair in found if pair[0]), reverse=not is_up)
        idle = [pair for pair in found if not pair[0]]
        whole = idle + busy if is_up else busy + idle
        assert part == [name for _, name in whole][start : start + count]
        wanted = ListQuery(query | {"sort": "name"}, ("in", "name"))
        part = cut(wanted, [(name, name) for name in names])
        assert part == sorted(names, reverse=is_up)[start : start + count]
    finally:
        queries.SORTED_AT_ONCE = SORTED_AT_ONCE


async def test_the_end_of_a_long_list_comes_in_turns(monkeypatch):
    taken = []

    async def next_turn():
        await trio.lowlevel.checkpoint()
        taken.append(trio.current_time())

    monkeypatch.setattr(turns, "TURN_S", 0)
    found = [(number * 7_919 % 10_007, f"t{number}") for number in range(1, 10_007)]
    wanted = ListQuery({"from": "9950", "n": "60", "sort": "in"}, ("in",))
    part = await wanted.select(found, TurnTaker(next_turn))
    assert len(part) == 56
    assert part == [name for _, name in sorted(found, reverse=True)][9_950:]
    assert len(taken) >= 20
