'use strict';
// Sends a message and receives it.

const { Consumer, Message, Producer } = require('ali-ons');

const TEXT = 'hello from Node';
const common = {
  nameSrv: process.env.NAMESRV_ADDR || '127.0.0.1:9876',
  httpclient: {}, // wanted by the client, and unused when nameSrv is given
  namespace: '',
  logger: { debug() {}, info() {}, warn() {}, error: console.error },
};

async function send() {
  const producer = new Producer({ ...common, producerGroup: 'hello-node-producer' });
  await producer.ready();
  const message = new Message('Hello', 'greeting', TEXT);
  message.keys = [ 'hello-1' ];
  const result = await producer.send(message);
  console.log('sent', result.msgId);
  await producer.close();
}

async function receive() {
  const consumer = new Consumer({ ...common, consumerGroup: 'hello-node-consumer' });
  const arrived = new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error('no message came in 30 s')), 30_000).unref();
    consumer.subscribe('Hello', '*', async message => {
      const text = message.body.toString();
      if (text === TEXT) {
        console.log('received:', text);
        resolve();
      }
    });
  });
  await consumer.ready();
  await arrived;
  await consumer.close();
}

send().then(receive).then(() => process.exit(0), error => {
  console.error(error);
  process.exit(1);
});
