import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Driver send|push|pull|repeat NAMESRV TOPIC COUNT [name=value ...], see drivers.py. */
public class Driver {
    static final PrintStream OUT = System.out;
    static final int API_TIMEOUT_MS = 20_000; // the client's own 3 s are short while several JVMs start
    static final List<Long> AGES = new ArrayList<>();
    static final Map<String, String> OPTIONS = new HashMap<>();
    static String nameServer;
    static String topic;
    static int count;

    public static void main(String[] args) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            sayFailed(error);
            System.exit(1); // the client's threads would go on for ever
        });
        nameServer = args[1];
        topic = args[2];
        count = Integer.parseInt(args[3]);
        for (String option : Arrays.asList(args).subList(4, args.length)) {
            String[] parts = option.split("=", 2);
            OPTIONS.put(parts[0], parts[1]);
        }
        switch (args[0]) {
            case "send":
                send();
                break;
            case "push":
                push();
                break;
            case "pull":
                pull();
                break;
            case "repeat":
                Repeats.run();
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        System.exit(0);
    }

    static String option(String name, String otherwise) {
        return OPTIONS.getOrDefault(name, otherwise);
    }

    static int number(String name, int otherwise) {
        return Integer.parseInt(option(name, Integer.toString(otherwise)));
    }

    static void say(String json) {
        synchronized (OUT) {
            OUT.println(json);
            OUT.flush();
        }
    }

    static void sayDone(int done) {
        say("{\"event\":\"done\",\"count\":" + done + "}");
    }

    static void sayFailed(Throwable error) {
        String text = String.valueOf(error).replaceAll("[^A-Za-z0-9 .:_-]", " ");
        say("{\"event\":\"failed\",\"error\":\"" + text + "\"}");
    }

    /** Returns whether the file of the option `pace` is there without a number in it. */
    static boolean isHeld() {
        return OPTIONS.containsKey("pace") && pace() < 0;
    }

    /** The number in the file: 0 without the file, -1 if it is empty. */
    static int pace() {
        try {
            String text = Files.readString(Path.of(option("pace", ""))).trim();
            return text.isEmpty() ? -1 : Integer.parseInt(text);
        } catch (NoSuchFileException gone) {
            return 0;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static void work() {
        try {
            while (isHeld()) {
                Thread.sleep(50);
            }
            Thread.sleep(OPTIONS.containsKey("pace") ? pace() : 0);
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
    }

    /** Reports a message, or keeps how long after its sender's clock it came. */
    static void receive(MessageExt message) {
        work();
        if (!OPTIONS.containsKey("timed")) {
            sayReceived(message);
            return;
        }
        long age = System.nanoTime() - ByteBuffer.wrap(message.getBody()).getLong();
        synchronized (AGES) {
            AGES.add(age);
        }
    }

    static void sayTimes() {
        synchronized (AGES) {
            int all = AGES.size();
            List<Long> timed = AGES.subList(Math.min(number("timed", 0), all), all);
            Collections.sort(timed);
            int left = timed.size();
            long p50 = left == 0 ? 0 : timed.get(left / 2), p99 = left == 0 ? 0 : timed.get(left * 99 / 100);
            say("{\"event\":\"done\",\"count\":" + all + ",\"p50_ns\":" + p50 + ",\"p99_ns\":" + p99 + "}");
        }
    }

    static void sayReceived(MessageExt message) {
        try {
            String digest = Bodies.digest(message.getBody(), message.getTags(), message.getKeys(),
                message.getUserProperty("number"), message.getUserProperty("name"));
            say("{\"event\":\"received\",\"number\":" + message.getUserProperty("number") + ",\"digest\":\"" + digest
                + "\",\"queue\":" + message.getQueueId() + ",\"offset\":" + message.getQueueOffset()
                + ",\"times\":" + message.getReconsumeTimes()
                + ",\"age\":" + (System.currentTimeMillis() - message.getBornTimestamp())
                + ",\"nanos\":" + System.nanoTime() + "}");
        } catch (Exception error) {
            sayFailed(error);
        }
    }

    static Message message(int number) {
        byte[] body = Bodies.body(number, number("size", 0)).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, "Tag" + number % 3, "Key" + number, body);
        message.putUserProperty("number", Integer.toString(number));
        message.putUserProperty("name", Bodies.NAME);
        if (number("delay", 0) > 0) {
            message.setDelayTimeLevel(number("delay", 0));
        }
        return message;
    }

    static void send() throws Exception {
        boolean isTransactional = option("mode", "sync").equals("transaction");
        DefaultMQProducer producer = isTransactional ? Transactions.producer(option("group", "interop-transactions"))
            : new DefaultMQProducer("interop-producer");
        producer.setHeartbeatBrokerInterval(number("heartbeat", 30_000));
        producer.setMqClientApiTimeout(API_TIMEOUT_MS);
        producer.setNamesrvAddr(nameServer);
        producer.setVipChannelEnabled(Boolean.parseBoolean(option("vip", "false")));
        producer.setSendMsgTimeout(30_000);
        producer.setNamespace(option("namespace", ""));
        producer.start();
        int first = number("first", 0);
        AtomicInteger sent = new AtomicInteger();
        switch (option("mode", "sync")) {
            case "sync":
                for (int i = first; i < first + count; i++) {
                    note(producer.send(message(i)), 1, sent);
                    Thread.sleep(number("pause", 0));
                }
                break;
            case "async":
                sendAsync(producer, first, sent);
                break;
            case "oneway":
                for (int i = first; i < first + count; i++) {
                    producer.sendOneway(message(i));
                    sent.incrementAndGet();
                }
                Thread.sleep(1_000);
                break;
            case "batch":
                for (int i = first; i < first + count; i += 10) {
                    List<Message> batch = new ArrayList<>();
                    for (int j = i; j < Math.min(i + 10, first + count); j++) {
                        batch.add(message(j));
                    }
                    note(producer.send(batch), batch.size(), sent);
                }
                break;
            case "transaction":
                for (int i = first; i < first + count; i++) {
                    note(((TransactionMQProducer) producer).sendMessageInTransaction(message(i), null), 1, sent);
                }
                say("{\"event\":\"sent\"}");
                waitForEnd();
                break;
            case "request":
                for (int i = first; i < first + count; i++) {
                    sayReceived((MessageExt) producer.request(message(i), 15_000));
                    sent.incrementAndGet();
                }
                break;
            case "orderly":
                for (int i = first; i < first + count; i++) {
                    note(producer.send(message(i), (queues, one, key) -> queues.get((int) key % queues.size()), i), 1,
                        sent);
                }
                break;
            default:
                throw new IllegalArgumentException(option("mode", "sync"));
        }
        producer.shutdown();
        sayDone(sent.get());
    }

    static void note(SendResult result, int messages, AtomicInteger sent) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            sent.addAndGet(messages);
        }
    }

    static void sendAsync(DefaultMQProducer producer, int first, AtomicInteger sent) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        for (int i = first; i < first + count; i++) {
            producer.send(message(i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    note(result, 1, sent);
                    left.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    sayFailed(error);
                    left.countDown();
                }
            });
        }
        left.await(30, TimeUnit.SECONDS);
    }

    static void push() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(option("group", "interop"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setVipChannelEnabled(Boolean.parseBoolean(option("vip", "false")));
        consumer.setInstanceName(option("instance", "one"));
        consumer.setNamespace(option("namespace", ""));
        consumer.setHeartbeatBrokerInterval(number("heartbeat", 30_000));
        consumer.setMqClientApiTimeout(API_TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        var model = consumer.getMessageModel(); // its package depends on the version
        consumer.setMessageModel(Enum.valueOf(model.getDeclaringClass(), option("model", "CLUSTERING")));
        if (OPTIONS.containsKey("sql")) {
            consumer.subscribe(topic, MessageSelector.bySql(option("sql", "")));
        } else {
            consumer.subscribe(topic, option("tags", "*"));
        }
        consumer.setMaxReconsumeTimes(number("max", -1));
        consumer.setConsumeThreadMin(number("threads", 20));
        consumer.setConsumeThreadMax(number("threads", 20));
        if (option("pop", "false").equals("true")) { // a method of 5.x: the broker assigns queues, and says to pop
            consumer.getClass().getMethod("setClientRebalance", boolean.class).invoke(consumer, false);
        }
        int failures = number("fail", 0);
        DefaultMQProducer replier = option("reply", "false").equals("true") ? replier() : null;
        if (option("order", "false").equals("true")) {
            consumer.setSuspendCurrentQueueTimeMillis(100);
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                messages.forEach(Driver::receive);
                return messages.get(0).getReconsumeTimes() < failures
                    ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                messages.forEach(Driver::receive);
                if (replier != null) {
                    messages.forEach(message -> reply(replier, message));
                }
                return messages.get(0).getReconsumeTimes() < failures
                    ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        say("{\"event\":\"ready\"}");
        waitForEnd();
        consumer.shutdown();
        sayTimes();
    }

    static void waitForEnd() throws Exception {
        while (System.in.read() >= 0) {
            continue;
        }
    }

    static DefaultMQProducer replier() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-replier");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        return producer;
    }

    /** Answers with the message itself. */
    static void reply(DefaultMQProducer producer, MessageExt message) {
        try {
            Message answer = MessageUtil.createReplyMessage(message, message.getBody());
            answer.setTags(message.getTags());
            answer.setKeys(message.getKeys());
            answer.putUserProperty("number", message.getUserProperty("number"));
            answer.putUserProperty("name", message.getUserProperty("name"));
            producer.send(answer);
        } catch (Exception error) {
            sayFailed(error);
        }
    }

    static void pull() throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(option("group", "interop"));
        consumer.setNamesrvAddr(nameServer);
        consumer.setAutoCommit(false);
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(topic));
        consumer.assign(queues);
        long end = System.currentTimeMillis() + 30_000;
        // read everything first: a pull that is under way would bring messages from before the seek
        for (int left = number("total", 0); left > 0 && System.currentTimeMillis() < end;) {
            left -= consumer.poll(500).size();
        }
        for (MessageQueue queue : queues) {
            consumer.seek(queue, number("offset", 0));
        }
        int received = 0;
        while (received < count && System.currentTimeMillis() < end) {
            for (MessageExt message : consumer.poll(500)) {
                sayReceived(message);
                received++;
            }
        }
        consumer.shutdown();
        sayDone(received);
    }
}
