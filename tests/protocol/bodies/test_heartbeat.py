from rmq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)


def test_round_trip():
    heartbeat = HeartbeatData(
        client_id="c@1",
        producer_data_set=[ProducerData(group_name="PG")],
        consumer_data_set=[
            ConsumerData(
                group_name="CG",
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
                subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
            )
        ],
    )
    assert b'"clientID":"c@1"' in heartbeat.encode()
    assert HeartbeatData.decode(heartbeat.encode()) == heartbeat


def test_ordinals_of_cpp_clients_become_names():
    heartbeat = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":5,"consumeType":1,'
        b'"groupName":"CG","messageModel":0,"subscriptionDataSet":'
        b'[{"subString":"*","subVersion":"1795229261718","topic":"T"}]}]}\n'
    )
    (consumer,) = heartbeat.consumer_data_set
    assert consumer.consume_type == ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model == MessageModel.BROADCASTING
    assert consumer.consume_from_where == ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
    (subscription,) = consumer.subscription_data_set
    assert subscription.sub_version == 1795229261718
    assert subscription.expression_type == "TAG"


def test_ordinals_that_mean_nothing_are_null():
    heartbeat = HeartbeatData.decode(b'{"consumerDataSet":[{"consumeType":9}]}')
    assert heartbeat.consumer_data_set[0].consume_type is None


def test_names_that_are_new_survive():
    heartbeat = HeartbeatData.decode(b'{"consumerDataSet":[{"messageModel":"NEW"}]}')
    assert heartbeat.consumer_data_set[0].message_model == "NEW"
