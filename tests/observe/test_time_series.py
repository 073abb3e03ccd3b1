"""Rings of an hour against a list of all that was put."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.observe.time_series import MAX_RINGS, POINTS, STEP_MS, UNKNOWN, Ring, Rings
from rmq.observe.views import show_view
from tests.observe.test_monitor import incident

__all__ = ["incident"]

NOW = 1_800_000_000_000
STEPS = st.lists(
    st.tuples(
        st.integers(-STEP_MS, 3 * STEP_MS) | st.just(POINTS * STEP_MS),
        st.integers(-5, 2**33),
        st.booleans(),
    ),
    max_size=80,
)


@given(STEPS)
def test_a_ring_is_the_last_hour_of_what_was_put(steps):
    ring, now_ms, latest = Ring(NOW), NOW, NOW // STEP_MS
    slow = {}
    for after_ms, value, adds in steps:
        now_ms += after_ms
        latest = max(latest, now_ms // STEP_MS)
        before = slow.get(latest, 0) if adds else 0
        slow[latest] = min(before + max(0, value), UNKNOWN - 1)
        (ring.add if adds else ring.put)(now_ms, max(0, value) if adds else value)
        expected = [slow.get(step) for step in range(latest - POINTS + 1, latest + 1)]
        assert ring.values(now_ms) == expected
        assert ring.is_silent(now_ms) == (not any(expected))


def test_the_number_of_rings_has_an_end():
    rings = Rings()
    for number in range(MAX_RINGS + 5):
        rings.want(f"t{number}", NOW)
        rings.want("t0", NOW)  # somebody looks at it all the time
    assert len(rings) == MAX_RINGS
    assert rings.values("t0", NOW) is not None
    assert rings.values("t1", NOW) is None
    rings.add_all(lambda _: 7, NOW)
    for number in range(2 * MAX_RINGS):
        rings.want(f"u{number}", NOW)
    assert len(rings._totals) <= MAX_RINGS


def test_amounts():
    rings = Rings()
    rings.put_all({"quiet": 0, "late": 9}, NOW)
    assert rings.values("quiet", NOW) is None
    rings.put_all({}, NOW + STEP_MS)
    assert rings.values("late", NOW + STEP_MS)[-2:] == [9, 0]
    rings.put_all({}, NOW + POINTS * STEP_MS)
    assert len(rings) == 0


def test_totals_that_begin_again_are_no_loss():
    rings = Rings()
    rings.want("t", NOW)
    for total in (10, 14, 2, 3):
        rings.add_all(lambda _, total=total: total, NOW)
    assert rings.values("t", NOW)[-1] == 5


async def test_the_views_have_an_hour(incident, monkeypatch):
    monkeypatch.setattr(incident.watch, "look", lambda: None)  # no sample but ours

    async def hour(view, name):
        found = await show_view(incident.broker, view, {"name": name}, None)
        assert found["step_ms"] == STEP_MS
        return found["hour"]

    await incident.send(2)
    incident.commit(0)
    assert await hour("group", "G") is None
    assert await hour("topic", "T") == [None] * POINTS  # from this look on
    incident.pass_time(20)
    await incident.send(3)
    incident.pass_time(20)
    incident.commit(5)
    incident.pass_time(20)
    known = [each for each in await hour("group", "G") if each is not None]
    assert known == [2, 5, 0, 0]
    assert sum(filter(None, await hour("topic", "T"))) == 3
