"""Two minutes of the lag of groups, in blocks."""

from rmq.cli.top.trend import CELL_MS, CELLS, MAX_NAMES, Trends


def test_cells_move_on_and_gaps_stay():
    trends = Trends()
    for step, lag in ((0, 10), (1, 40), (3, 80)):
        trends.add(step * CELL_MS, [("mail", lag)])
    assert trends.render_all() == {"mail": " " * (CELLS - 4) + "▁▄ █"}
    trends.add(3 * CELL_MS + 1, [("mail", 20)])
    assert trends.render_all()["mail"][-1] == "█", "the largest of a cell counts"


def test_what_is_gone_is_forgotten_and_names_have_a_limit():
    trends = Trends()
    trends.add(0, [(str(number), 1) for number in range(MAX_NAMES + 5)])
    assert len(trends.render_all()) == MAX_NAMES
    trends.add(9_999 * CELL_MS, [("mail", 0)])
    trends.add(9_999 * CELL_MS, [])
    assert trends.render_all() == {"mail": " " * (CELLS - 1) + "▁"}


def test_a_clock_that_goes_back_moves_nothing():
    trends = Trends()
    trends.add(5 * CELL_MS, [("mail", 1)])
    trends.add(0, [("mail", 9)])
    assert trends.render_all() == {"mail": " " * (CELLS - 1) + "█"}
