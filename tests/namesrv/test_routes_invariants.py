"""Whatever brokers do, in whatever order, the tables agree with each other."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.namesrv.registration import Caller, Registration
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import ManualClock

NAMES, CLUSTERS, TOPICS = ["a", "b"], ["C", "D"], ["T", "U", "V"]
ADDRESSES = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
CONNECTIONS = [object(), object()]

registrations = st.builds(
    Registration,
    cluster=st.sampled_from(CLUSTERS),
    address=st.sampled_from(ADDRESSES),
    broker_name=st.sampled_from(NAMES),
    broker_id=st.integers(0, 2),
    ha_address=st.just("h"),
    topics=st.sets(st.sampled_from(TOPICS)).map(
        lambda names: {t: TopicConfig(topic_name=t) for t in names}
    ),
    data_version=st.builds(
        DataVersion,
        counter=st.integers(1, 3),
        state_version=st.integers(0, 1),
        timestamp=st.just(0),
    ),
    timeout_ms=st.just(100),
    enable_acting_master=st.sampled_from([None, False, True]),
    zone_name=st.none(),
    mappings=st.none(),
    caller=st.builds(Caller, st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.booleans()),
)
steps = st.one_of(
    st.tuples(st.just("register"), registrations, st.sampled_from(CONNECTIONS)),
    st.tuples(
        st.just("unregister"),
        st.sampled_from(CLUSTERS),
        st.sampled_from(ADDRESSES),
        st.sampled_from(NAMES),
        st.integers(0, 2),
    ),
    st.tuples(st.just("on_close"), st.sampled_from(CONNECTIONS)),
    st.tuples(
        st.just("delete_topic"),
        st.sampled_from(TOPICS),
        st.sampled_from([None, *CLUSTERS]),
    ),
    st.tuples(st.just("wait"), st.integers(1, 150)),
)


@given(st.lists(steps, max_size=40), st.booleans())
def test_the_tables_agree_after_every_step(todo, keeps):
    clock = ManualClock()
    table = RouteTable(clock.now_ms, keeps_unregistered_topics=keeps)
    for name, *arguments in todo:
        if name == "wait":
            clock.ms += arguments[0]
            table.expire()
            continue
        with suppress(RequestRejected):
            getattr(table, name)(*arguments)
        agree(table)


def agree(table):
    info = table.cluster_info()
    in_clusters = {n for names in info.cluster_addr_table.values() for n in names}
    assert in_clusters == info.broker_addr_table.keys()
    for name, data in info.broker_addr_table.items():
        assert data.broker_addrs, name
        assert len(set(data.broker_addrs.values())) == len(data.broker_addrs)
        assert name in info.cluster_addr_table[data.cluster]
    for topic in table.topics.names():
        route = table.route(topic)
        assert route is not None, topic
        assert {q.broker_name for q in route.queue_datas} == {
            b.broker_name for b in route.broker_datas
        }
