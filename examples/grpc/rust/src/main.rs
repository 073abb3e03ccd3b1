//! Sends a message and receives it.

use std::time::{Duration, Instant};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::MessageBuilder;
use rocketmq::{Producer, SimpleConsumer};

const TOPIC: &str = "Hello";
const TEXT: &str = "hello from Rust";

fn client() -> ClientOption {
    let endpoints = std::env::var("ENDPOINTS").unwrap_or("127.0.0.1:10911".to_string());
    let mut option = ClientOption::default();
    option.set_access_url(endpoints);
    option.set_enable_tls(false);
    option
}

async fn send() -> Result<(), ClientError> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![TOPIC]);
    let mut producer = Producer::new(option, client())?;
    producer.start().await?;
    let message = MessageBuilder::builder()
        .set_topic(TOPIC)
        .set_tag("greeting")
        .set_keys(vec!["hello-1"])
        .set_body(TEXT.into())
        .build()?;
    println!("sent {}", producer.send(message).await?.message_id());
    producer.shutdown().await
}

async fn receive() -> Result<(), ClientError> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![TOPIC]);
    option.set_consumer_group("hello-rust-consumer");
    let mut consumer = SimpleConsumer::new(option, client())?;
    consumer.start().await?;
    let all = FilterExpression::new(FilterType::Tag, "*");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut arrived = false;
    while !arrived && Instant::now() < deadline {
        for message in consumer.receive(TOPIC, &all).await? {
            consumer.ack(&message).await?;
            arrived |= message.body() == TEXT.as_bytes();
        }
    }
    assert!(arrived, "no message came in 30 s");
    println!("received: {TEXT}");
    consumer.shutdown().await
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    send().await?;
    receive().await
}
