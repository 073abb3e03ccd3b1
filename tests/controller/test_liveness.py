from msgspec.structs import replace

from rmq.controller.election import lacks_confirmed
from rmq.controller.groups import Group, Member
from rmq.controller.liveness import Liveness
from rmq.protocol.headers.cluster import BrokerHeartbeatRequestHeader

GROUP = Group(
    cluster="C",
    name="b",
    members={each: Member(f"h:{each}", "") for each in (1, 2)},
    next_id=3,
)


class Time:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


def known(time):
    liveness = Liveness(time)
    liveness.begin_to_lead()
    time.now_s += 10
    return liveness


def beat(liveness, broker_id, connection="x", host="h", **fields):
    header = BrokerHeartbeatRequestHeader(
        cluster_name="C",
        broker_name="b",
        broker_addr=f"h:{broker_id}",
        broker_id=broker_id,
        **fields,
    )
    liveness.record_heartbeat(header, host, connection)


def test_a_broker_lives_until_its_heartbeat_expires():
    time = Time()
    liveness = known(time)
    beat(liveness, 1, heartbeat_timeout_mills=3_000, epoch=2, max_offset=7)
    time.now_s += 3
    live = liveness.alive_members(GROUP).heard
    assert (live.keys(), live[1].epoch, live[1].max_offset) == ({1}, 2, 7)
    assert liveness.host_of(("b", 1)) == "h"
    time.now_s += 0.1
    assert not liveness.alive_members(GROUP).is_alive(1)
    assert liveness.host_of(("b", 1)) is None


def test_a_stranger_cannot_live_for_ever_or_expire_at_once():
    time = Time()
    liveness = known(time)
    beat(liveness, 1, heartbeat_timeout_mills=2**62)
    beat(liveness, 2, heartbeat_timeout_mills=-5)
    time.now_s += 1
    assert liveness.alive_members(GROUP).heard.keys() == {1, 2}
    time.now_s += 600
    assert not liveness.alive_members(GROUP).heard


def test_a_broker_that_lost_its_tail_has_what_it_has_now():
    liveness = known(Time())
    beat(liveness, 1, epoch=2, max_offset=700)
    beat(liveness, 1, epoch=2, max_offset=500)
    assert liveness.alive_members(GROUP).heard[1].max_offset == 500


def test_a_new_leader_assumes_that_unheard_members_live():
    time = Time()
    liveness = Liveness(time)
    liveness.begin_to_lead()
    beat(liveness, 2)
    alive = liveness.alive_members(GROUP)
    assert (set(alive.heard), set(alive.assumed)) == ({2}, {1})
    time.now_s += 10
    assert not liveness.alive_members(GROUP).is_alive(1)


def heard_for(liveness, time, seconds, *broker_ids):
    for _ in range(seconds):
        time.now_s += 1
        for each in broker_ids:
            beat(liveness, each)


def test_who_fell_silent_while_another_one_was_heard_is_dead_for_a_new_leader():
    time = Time()
    liveness = Liveness(time)
    heard_for(liveness, time, 5, 1, 2)
    heard_for(liveness, time, 11, 2)
    liveness.begin_to_lead()
    alive = liveness.alive_members(GROUP)
    assert (set(alive.heard), set(alive.assumed)) == ({2}, set())
    liveness.resume()  # unless this controller could not run meanwhile
    assert set(liveness.alive_members(GROUP).assumed) == {1}
    beat(liveness, 1)
    assert liveness.alive_members(GROUP).heard.keys() == {1, 2}


def test_a_new_leader_that_heard_nobody_for_some_time_assumes_that_all_live():
    """It was cut off itself: whoever is heard again first is not the only one."""
    time = Time()
    liveness = Liveness(time)
    heard_for(liveness, time, 5, 1, 2)
    time.now_s += 11
    heard_for(liveness, time, 1, 2)
    liveness.begin_to_lead()
    assert set(liveness.alive_members(GROUP).assumed) == {1}
    time.now_s += 10
    assert not liveness.alive_members(GROUP).is_alive(1)


def test_a_broker_whose_port_is_closed_is_not_assumed_to_live():
    liveness = Liveness(Time())
    liveness.begin_to_lead()
    beat(liveness, 1)
    liveness.mark_dead(("b", 1))
    assert not liveness.alive_members(GROUP).is_alive(1)
    beat(liveness, 1)
    assert liveness.alive_members(GROUP).is_alive(1)


def test_members_unheard_while_the_controller_could_not_run_live_a_moment_longer():
    time = Time()
    liveness = known(time)
    beat(liveness, 1, heartbeat_timeout_mills=1_000)
    time.now_s += 30
    liveness.resume()
    assert set(liveness.alive_members(GROUP).assumed) == {1, 2}
    time.now_s += 5
    assert not liveness.alive_members(GROUP).is_alive(1)


def test_the_dead_stay_dead_while_the_controller_could_not_run():
    time = Time()
    liveness = known(time)
    liveness.mark_dead(("b", 1))
    liveness.resume()
    assert set(liveness.alive_members(GROUP).assumed) == {2}


def test_who_speaks_on_a_connection():
    liveness = known(Time())
    beat(liveness, 1, "x")
    beat(liveness, 2, "y")
    assert list(liveness.brokers_on("x")) == [("b", 1)]
    beat(liveness, 1, "z")
    assert list(liveness.brokers_on("x")) == []
    assert liveness.is_new_since(("b", 1), "x")
    assert not liveness.is_new_since(("b", 2), "y")
    assert not liveness.is_new_since(("c", 2), "y")


def test_members_that_are_forgotten_are_no_entries():
    liveness = known(Time())
    beat(liveness, 1)
    liveness.mark_dead(("b", 2))
    liveness.keep_only([])
    assert list(liveness.brokers_on("x")) == []
    liveness.begin_to_lead()
    assert set(liveness.alive_members(GROUP).assumed) == {1, 2}


def test_a_log_must_contain_what_was_confirmed_before_its_heartbeat():
    """Under load the master confirms more before it dies than a slave's last heartbeat
    has; an election that waits for the next heartbeat costs up to a second.
    """
    time = Time()
    liveness = known(time)
    beat(liveness, 1, epoch=1, max_offset=110, confirm_offset=100)
    beat(liveness, 2, epoch=1, max_offset=100)
    beat(liveness, 1, epoch=1, max_offset=160, confirm_offset=150)
    alive = liveness.alive_members(GROUP)
    assert alive.confirmed == (1, 150)
    assert alive.heard[2].required == (1, 100)
    assert not lacks_confirmed(2, alive)
    beat(liveness, 2, epoch=1, max_offset=120)
    assert lacks_confirmed(2, liveness.alive_members(GROUP))
    beat(liveness, 2, epoch=1, max_offset=150)
    assert not lacks_confirmed(2, liveness.alive_members(GROUP))
    stored = replace(GROUP, confirmed=(1, 200))
    assert lacks_confirmed(2, liveness.alive_members(stored))
