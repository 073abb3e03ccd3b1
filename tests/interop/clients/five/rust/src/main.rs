//! driver send|simple ENDPOINTS TOPIC COUNT [name=value ...], see five.py.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::error::ClientError;
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::json;
use sha2::{Digest, Sha256};

const NAME: &str = "日本 é 😀";
const RETRY_PAUSE: Duration = Duration::from_millis(500);

struct Job {
    endpoints: String,
    topic: String,
    count: usize,
    options: HashMap<String, String>,
}

impl Job {
    fn text(&self, name: &str, otherwise: &str) -> String {
        self.options.get(name).cloned().unwrap_or_else(|| otherwise.to_string())
    }

    fn number(&self, name: &str, otherwise: u64) -> u64 {
        self.text(name, &otherwise.to_string()).parse().expect(name)
    }

    fn client(&self) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(self.endpoints.clone());
        option.set_enable_tls(false);
        option.set_timeout(Duration::from_secs(5));
        option.set_long_polling_timeout(Duration::from_secs(10)); // the deadline of a request, too
        option
    }

    fn message(&self, number: usize) -> impl Message {
        let body = format!("message {} 日本語 é 😀 {}", number, "x".repeat(number % 200)).into_bytes();
        let made = match self.text("kind", "normal").as_str() {
            "fifo" => MessageBuilder::fifo_message_builder(&self.topic, body, format!("group{}", number % 4)),
            "delay" => {
                let due = (now_ms() + self.number("delay", 0)) / 1000;
                MessageBuilder::delay_message_builder(&self.topic, body, due as i64)
            }
            "transaction" => MessageBuilder::transaction_message_builder(&self.topic, body),
            _ => MessageBuilder::builder().set_topic(&self.topic).set_body(body),
        };
        made.set_tag(format!("Tag{}", number % 3))
            .set_keys(vec![format!("Key{}", number)])
            .set_properties(HashMap::from([("number", number.to_string()), ("name", NAME.to_string())]))
            .build()
            .expect("a message")
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis() as u64
}

fn number_of(message: &MessageView) -> u64 {
    message.properties()["number"].parse().expect("a number")
}

fn say_received(message: &MessageView) {
    let mut digest = Sha256::new();
    digest.update(message.body());
    let properties = message.properties();
    for part in [message.tag().unwrap_or(""), &message.keys().join(" "), &properties["number"], &properties["name"]] {
        digest.update([0]);
        digest.update(part);
    }
    let hex: String = digest.finalize().iter().map(|byte| format!("{:02x}", byte)).collect();
    println!("{}", json!({
        "event": "received", "number": number_of(message), "digest": hex, "attempt": message.delivery_attempt(),
        "at": now_ms(), "due": message.delivery_timestamp().unwrap_or(0) * 1000,
    }));
}

async fn send(job: &Job) -> Result<(), ClientError> {
    let mut option = ProducerOption::default();
    option.set_topics(vec![job.topic.clone()]);
    let in_transactions = job.text("kind", "normal") == "transaction";
    let mut producer = if in_transactions {
        Producer::new_transaction_producer(option, job.client(), Box::new(|_, message| {
            println!("{}", json!({"event": "checked", "number": number_of(&message)}));
            TransactionResolution::COMMIT
        }))?
    } else {
        Producer::new(option, job.client())?
    };
    producer.start().await?;
    let first = job.number("first", 0) as usize;
    for number in first..first + job.count {
        while let Err(error) = send_one(job, &producer, number, in_transactions).await {
            if !job.options.contains_key("retry") {
                return Err(error);
            }
            println!("{}", json!({"event": "warned", "error": error.to_string()}));
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        tokio::time::sleep(Duration::from_millis(job.number("every", 0))).await;
    }
    println!("{}", json!({"event": "sent"}));
    if in_transactions {
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    }
    if let Err(error) = producer.shutdown().await {
        println!("{}", json!({"event": "warned", "error": error.to_string()}));
    }
    println!("{}", json!({"event": "done", "count": job.count}));
    Ok(())
}

async fn send_one(job: &Job, producer: &Producer, number: usize, in_transaction: bool) -> Result<(), ClientError> {
    let message = job.message(number);
    if !in_transaction {
        return producer.send(message).await.map(|_| ());
    }
    let transaction = producer.send_transaction_message(message).await?;
    match number % 3 {
        0 => transaction.commit().await,
        1 => transaction.rollback().await,
        _ => Ok(()),
    }
}

async fn simple(job: &Job) -> Result<(), ClientError> {
    let mut option = SimpleConsumerOption::default();
    option.set_topics(vec![job.topic.clone()]);
    option.set_consumer_group(job.text("group", ""));
    let mut consumer = SimpleConsumer::new(option, job.client())?;
    consumer.start().await?;
    println!("{}", json!({"event": "ready"}));
    let wanted = match job.options.get("sql") {
        Some(sql) => FilterExpression::new(FilterType::Sql, sql),
        None => FilterExpression::new(FilterType::Tag, job.text("tags", "*")),
    };
    let mut done = HashSet::new();
    while done.len() < job.count {
        if let Err(error) = take(job, &consumer, &wanted, &mut done).await {
            println!("{}", json!({"event": "warned", "error": error.to_string()}));
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }
    consumer.shutdown().await?;
    println!("{}", json!({"event": "done", "count": done.len()}));
    Ok(())
}

async fn take(
    job: &Job,
    consumer: &SimpleConsumer,
    wanted: &FilterExpression,
    done: &mut HashSet<u64>,
) -> Result<(), ClientError> {
    let invisible = Duration::from_secs(job.number("invisible", 15));
    for message in consumer.receive_with(&job.topic, wanted, 16, invisible).await? {
        say_received(&message);
        if message.delivery_attempt() as u64 > job.number("forget", 0) {
            consumer.ack(&message).await?;
            done.insert(number_of(&message));
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = arguments[4..].iter().filter_map(|option| option.split_once('='));
    let job = Job {
        endpoints: arguments[1].clone(),
        topic: arguments[2].clone(),
        count: arguments[3].parse().expect("a count"),
        options: options.map(|(key, value)| (key.to_string(), value.to_string())).collect(),
    };
    let outcome = if arguments[0] == "send" { send(&job).await } else { simple(&job).await };
    if let Err(error) = outcome {
        println!("{}", json!({"event": "failed", "error": error.to_string()}));
        std::process::exit(1);
    }
    std::process::exit(0);
}
