import ast

from rmq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData

ROUTE = TopicRouteData(
    queue_datas=[QueueData(broker_name="b", read_queue_nums=4, perm=6)],
    broker_datas=[
        BrokerData(
            broker_name="b",
            cluster="c",
            broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:10921"},
            enable_acting_master=False,
        )
    ],
)


def test_the_text_that_all_clients_read():
    assert ROUTE.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10911","1":"127.0.0.1:10921"},'
        b'"brokerName":"b","cluster":"c"}],"filterServerTable":{},"queueDatas":'
        b'[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":0}]}'
    )


def test_it_is_a_python_literal_too():
    route = ast.literal_eval(ROUTE.encode().decode())
    assert route["brokerDatas"][0]["brokerAddrs"]["0"] == "127.0.0.1:10911"


def test_what_older_name_servers_write():
    route = TopicRouteData.decode(
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911"},"brokerName":"b",'
        b'"cluster":"c","enableActingMaster":false}],"queueDatas":[]}'
    )
    assert route.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
    assert route.broker_datas[0].enable_acting_master is None


def test_an_acting_master_is_told():
    data = BrokerData(enable_acting_master=True)
    assert data.encode() == b'{"brokerAddrs":{},"enableActingMaster":true}'


def test_cluster_info():
    info = ClusterInfo(
        broker_addr_table={"b": ROUTE.broker_datas[0]}, cluster_addr_table={"c": ["b"]}
    )
    assert ClusterInfo.decode(info.encode()) == info
