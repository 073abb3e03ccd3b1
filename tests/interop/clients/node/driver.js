'use strict';
// driver send|push NAMESRV TOPIC COUNT [name=value ...], see drivers.py.

const crypto = require('crypto');
const { Consumer, Producer, Message } = require('ali-ons');

const NAME = '日本 é 😀';
const LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const [ scenario, namesrv, topic, wanted, ...rest ] = process.argv.slice(2);
const count = Number(wanted);
const options = Object.fromEntries(rest.map(option => option.split(/=(.*)/s).slice(0, 2)));
const httpclient = {}; // wanted, and unused as long as the name server is given
const quiet = { debug() {}, info() {}, warn() {}, error: console.error };

function say(report) {
  process.stdout.write(JSON.stringify(report) + '\n');
}

function bodyOf(number, size) {
  const body = [ `message ${number} 日本語 é 😀 ${'x'.repeat(number % 200)}` ];
  let state = number;
  for (let left = size - Buffer.byteLength(body[0]); left > 0; left--) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    body.push(LETTERS[(state >> 16) & 63]);
  }
  return body.join('');
}

function message(number) {
  const made = new Message(topic, `Tag${number % 3}`, bodyOf(number, Number(options.size || 0)));
  made.keys = [ `Key${number}` ];
  made.properties.number = String(number);
  made.properties.name = NAME;
  if (options.delay) made.delayTimeLevel = Number(options.delay);
  return made;
}

function sayReceived(received) {
  const digest = crypto.createHash('sha256').update(received.body);
  const { number, name } = received.properties;
  for (const part of [ received.tags, received.keys, number, name ]) {
    digest.update('\0').update(part);
  }
  say({
    event: 'received', number: Number(number), digest: digest.digest('hex'),
    queue: received.queueId, offset: Number(received.queueOffset),
    times: received.reconsumeTimes, age: Date.now() - Number(received.bornTimestamp),
  });
}

async function send() {
  const producer = new Producer({
    httpclient, nameSrv: namesrv, namespace: options.namespace || '',
    producerGroup: 'interop-producer', maxMessageSize: 4 << 20, sendMsgTimeout: 10000, logger: quiet,
  });
  producer.on('error', error => say({ event: 'failed', error: String(error) }));
  await producer.ready();
  const first = Number(options.first || 0);
  const numbers = Array.from({ length: count }, (_, i) => first + i);
  let sent = 0;
  const one = async number => {
    const result = await producer.send(message(number));
    sent += result.sendStatus === 'SEND_OK' ? 1 : 0;
  };
  if (options.mode === 'async') {
    await Promise.all(numbers.map(one));
  } else {
    for (const number of numbers) await one(number);
  }
  await producer.close();
  say({ event: 'done', count: sent });
}

async function push() {
  const consumer = new Consumer({
    httpclient,
    nameSrv: namesrv,
    namespace: options.namespace || '',
    consumerGroup: options.group || 'interop',
    isBroadcast: options.model === 'BROADCASTING',
    instanceName: options.instance || 'one',
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
    maxReconsumeTimes: Number(options.max || 16),
    logger: quiet,
  });
  // one of them tells that the group's retry topic does not exist before the first heartbeat
  consumer.on('error', error => say({ event: 'warned', error: String(error) }));
  consumer.subscribe(topic, options.tags || '*', async received => {
    sayReceived(received);
    // of a message that comes again what the listener returns is ignored
    if (received.reconsumeTimes < Number(options.fail || 0)) throw new Error('again');
  });
  await consumer.ready();
  say({ event: 'ready' });
  process.stdin.resume();
  await new Promise(resolve => process.stdin.on('end', resolve));
  await consumer.close();
  say({ event: 'done', count: 0 });
}

(scenario === 'send' ? send() : push()).then(() => process.exit(0), error => {
  say({ event: 'failed', error: String(error && error.stack) });
  process.exit(1);
});
