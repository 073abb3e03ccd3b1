'use strict';
// driver send|push|simple ENDPOINTS TOPIC COUNT [name=value ...], see five.py.

const crypto = require('crypto');
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { FilterType, TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const NAME = '日本 é 😀';
const RETRY_PAUSE_MS = 500;
const [ scenario, endpoints, topic, wanted, ...rest ] = process.argv.slice(2);
const count = Number(wanted);
const options = Object.fromEntries(rest.map(option => option.split(/=(.*)/s).slice(0, 2)));
const kind = options.kind || 'normal';
const quiet = { debug() {}, info() {}, warn() {}, error: console.error };
const client = { endpoints, namespace: '', logger: quiet, requestTimeout: 5000 };

function say(report) {
  process.stdout.write(JSON.stringify(report) + '\n');
}

function pause(ms) {
  return new Promise(resolve => setTimeout(resolve, ms));
}

function inputEnds() {
  return new Promise(resolve => process.stdin.on('end', resolve).resume());
}

function message(number) {
  const made = {
    topic, tag: `Tag${number % 3}`, keys: [ `Key${number}` ],
    body: Buffer.from(`message ${number} 日本語 é 😀 ${'x'.repeat(number % 200)}`),
    properties: new Map([ [ 'number', String(number) ], [ 'name', NAME ] ]),
  };
  if (kind === 'fifo') made.messageGroup = `group${number % 4}`;
  if (kind === 'delay' || kind === 'recall') made.delay = Number(options.delay);
  return made;
}

const numberOf = received => Number(received.properties.get('number'));

function sayReceived(received) {
  const digest = crypto.createHash('sha256').update(received.body);
  const { properties } = received;
  for (const part of [ received.tag, received.keys.join(' '), properties.get('number'), properties.get('name') ]) {
    digest.update('\0').update(part);
  }
  say({
    event: 'received', number: numberOf(received), digest: digest.digest('hex'),
    attempt: received.deliveryAttempt, at: Date.now(), due: Number(received.deliveryTimestamp || 0),
  });
}

async function send() {
  const checker = {
    async check(half) {
      say({ event: 'checked', number: numberOf(half) });
      return TransactionResolution.COMMIT;
    },
  };
  const producer = new Producer({ ...client, topics: [ topic ], checker: kind === 'transaction' ? checker : undefined });
  await producer.startup();
  const first = Number(options.first || 0);
  for (let number = first; number < first + count; number++) {
    while (!await sendOne(producer, number)) await pause(RETRY_PAUSE_MS);
    if (options.every) await pause(Number(options.every));
  }
  say({ event: 'sent' });
  if (kind === 'transaction') await inputEnds();
  await producer.shutdown();
  say({ event: 'done', count });
}

async function sendOne(producer, number) {
  try {
    if (kind === 'transaction') {
      const transaction = producer.beginTransaction();
      await producer.send(message(number), transaction);
      if (number % 3 === 0) await transaction.commit();
      if (number % 3 === 1) await transaction.rollback();
      return true;
    }
    const receipt = await producer.send(message(number));
    if (kind === 'recall' && number % 2) await producer.recallMessage(topic, receipt.recallHandle);
  } catch (error) {
    if (!options.retry) throw error;
    say({ event: 'warned', error: String(error) });
    return false;
  }
  return true;
}

function subscriptions() {
  const expression = options.sql ? new FilterExpression(options.sql, FilterType.SQL)
    : new FilterExpression(options.tags || '*');
  return new Map([ [ topic, expression ] ]);
}

async function push() {
  const failures = Number(options.fail || 0);
  const consumer = new PushConsumer({
    ...client, consumerGroup: options.group, subscriptions: subscriptions(),
    messageListener: {
      async consume(received) {
        sayReceived(received);
        return received.deliveryAttempt <= failures ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  say({ event: 'ready' });
  await inputEnds();
  await consumer.shutdown();
  say({ event: 'done', count: 0 });
}

async function simple() {
  const consumer = new SimpleConsumer({
    ...client, consumerGroup: options.group, subscriptions: subscriptions(), awaitDuration: 5000,
  });
  await consumer.startup();
  say({ event: 'ready' });
  const done = new Set();
  while (done.size < count) {
    try {
      await take(consumer, done);
    } catch (error) {
      say({ event: 'warned', error: String(error) });
      await pause(RETRY_PAUSE_MS);
    }
  }
  await consumer.shutdown();
  say({ event: 'done', count: done.size });
}

/** Acks what one request brings, but for what `change` and `forget` say. */
async function take(consumer, done) {
  const change = Number(options.change || 0);
  for (const received of await consumer.receive(16, Number(options.invisible || 15) * 1000)) {
    sayReceived(received);
    if (change && received.deliveryAttempt === 1) {
      await consumer.changeInvisibleDuration(received, change * 1000);
    } else if (received.deliveryAttempt > Number(options.forget || 0)) {
      await consumer.ack(received);
      done.add(numberOf(received));
    }
  }
}

({ send, push, simple })[scenario]().then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
