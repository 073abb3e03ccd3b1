import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** FiveDriver send|push|lite|simple ENDPOINTS TOPIC COUNT [name=value ...], see five.py. */
public class FiveDriver {
    static final PrintStream OUT = System.out;
    static final int RETRY_PAUSE_MS = 500;
    static final Map<String, String> OPTIONS = new HashMap<>();
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static ClientConfiguration configuration;
    static String topic;
    static int count;

    public static void main(String[] args) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            System.exit(1); // the client's threads would go on for ever
        });
        topic = args[2];
        count = Integer.parseInt(args[3]);
        for (String option : Arrays.asList(args).subList(4, args.length)) {
            String[] parts = option.split("=", 2);
            OPTIONS.put(parts[0], parts[1]);
        }
        configuration = ClientConfiguration.newBuilder().setEndpoints(args[1])
            .enableSsl("true".equals(OPTIONS.get("tls"))).setRequestTimeout(Duration.ofSeconds(5)).build();
        switch (args[0]) {
            case "send":
                send();
                break;
            case "push":
                push();
                break;
            case "lite":
                lite();
                break;
            default:
                simple();
        }
        System.exit(0);
    }

    static synchronized void say(String report) {
        OUT.println(report);
        OUT.flush();
    }

    static void sayWarned(Throwable error) {
        String text = String.valueOf(error).replaceAll("[^ -~]", "?").replace('"', '\'').replace('\\', '/');
        say("{\"event\":\"warned\",\"error\":\"" + text + "\"}");
    }

    static int number(String name, int otherwise) {
        return Integer.parseInt(OPTIONS.getOrDefault(name, String.valueOf(otherwise)));
    }

    static String kind() {
        return OPTIONS.getOrDefault("kind", "normal");
    }

    static Message message(int i) {
        MessageBuilder made = PROVIDER.newMessageBuilder().setTopic(topic)
            .setBody(Bodies.body(i).getBytes(StandardCharsets.UTF_8)).setTag("Tag" + i % 3).setKeys("Key" + i)
            .addProperty("number", String.valueOf(i)).addProperty("name", Bodies.NAME);
        if (kind().equals("fifo")) {
            made.setMessageGroup("group" + i % 4);
        }
        if (kind().equals("lite")) {
            made.setLiteTopic("lite" + i % 4);
        }
        if (kind().equals("delay") || kind().equals("recall")) {
            made.setDeliveryTimestamp(System.currentTimeMillis() + number("delay", 0));
        }
        return made.build();
    }

    static int numberOf(MessageView message) {
        return Integer.parseInt(message.getProperties().get("number"));
    }

    static void sayReceived(MessageView message) throws Exception {
        byte[] body = new byte[message.getBody().remaining()];
        message.getBody().duplicate().get(body);
        Collection<String> keys = message.getKeys();
        String digest = Bodies.digest(body, message.getTag().orElse(""), String.join(" ", keys),
            String.valueOf(numberOf(message)), message.getProperties().get("name"));
        say("{\"event\":\"received\",\"number\":" + numberOf(message) + ",\"digest\":\"" + digest
            + "\",\"attempt\":" + message.getDeliveryAttempt() + ",\"at\":" + System.currentTimeMillis()
            + ",\"due\":" + message.getDeliveryTimestamp().orElse(0L) + "}");
    }

    static void send() throws Exception {
        ProducerBuilder builder = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
        if (kind().equals("transaction")) {
            builder.setTransactionChecker(message -> {
                say("{\"event\":\"checked\",\"number\":" + numberOf(message) + "}");
                return TransactionResolution.COMMIT;
            });
        }
        try (Producer producer = builder.build()) {
            int first = number("first", 0);
            for (int i = first; i < first + count; i++) {
                while (!sendOne(producer, i)) {
                    Thread.sleep(RETRY_PAUSE_MS);
                }
                Thread.sleep(number("every", 0));
            }
            say("{\"event\":\"sent\"}");
            if (kind().equals("transaction")) {
                System.in.readAllBytes();
            }
        }
        say("{\"event\":\"done\",\"count\":" + count + "}");
    }

    static boolean sendOne(Producer producer, int i) throws Exception {
        try {
            if (kind().equals("transaction")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(i), transaction);
                if (i % 3 == 0) {
                    transaction.commit();
                } else if (i % 3 == 1) {
                    transaction.rollback();
                }
                return true;
            }
            SendReceipt receipt = producer.send(message(i));
            if (kind().equals("recall") && i % 2 == 1) {
                producer.recallMessage(topic, receipt.getRecallHandle());
            }
            return true;
        } catch (Exception error) {
            if (!OPTIONS.containsKey("retry")) {
                throw error;
            }
            sayWarned(error);
            return false;
        }
    }

    static Map<String, FilterExpression> subscriptions() {
        FilterExpression wanted = OPTIONS.containsKey("sql")
            ? new FilterExpression(OPTIONS.get("sql"), FilterExpressionType.SQL92)
            : new FilterExpression(OPTIONS.getOrDefault("tags", "*"), FilterExpressionType.TAG);
        return Collections.singletonMap(topic, wanted);
    }

    static void push() throws Exception {
        PushConsumer consumer = PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(OPTIONS.get("group")).setSubscriptionExpressions(subscriptions())
            .setMessageListener(message -> {
                try {
                    sayReceived(message);
                } catch (Exception error) {
                    sayWarned(error);
                }
                return message.getDeliveryAttempt() <= number("fail", 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        say("{\"event\":\"ready\"}");
        System.in.readAllBytes();
        consumer.close();
        say("{\"event\":\"done\",\"count\":0}");
    }

    /** Lite topics `lites`, joined with commas. */
    static void lite() throws Exception {
        LitePushConsumer consumer = PROVIDER.newLitePushConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(OPTIONS.get("group")).bindTopic(topic)
            .setConsumptionThreadCount(1) // several would take the messages of one lite topic side by side
            .setMessageListener(message -> {
                try {
                    sayReceived(message);
                } catch (Exception error) {
                    sayWarned(error);
                }
                return message.getDeliveryAttempt() <= number("fail", 0) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
        for (String name : OPTIONS.getOrDefault("lites", "").isEmpty() ? new String[0] : OPTIONS.get("lites").split(",")) {
            consumer.subscribeLite(name);
        }
        say("{\"event\":\"ready\"}");
        System.in.readAllBytes();
        say("{\"event\":\"taken\",\"lites\":\"" + String.join(",", new TreeSet<>(consumer.getLiteTopicSet())) + "\"}");
        consumer.close();
        say("{\"event\":\"done\",\"count\":0}");
    }

    static void simple() throws Exception {
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(OPTIONS.get("group")).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(subscriptions()).build();
        say("{\"event\":\"ready\"}");
        Set<Integer> done = new HashSet<>();
        while (done.size() < count) {
            try {
                take(consumer, done);
            } catch (Exception error) {
                sayWarned(error);
                Thread.sleep(RETRY_PAUSE_MS);
            }
        }
        consumer.close();
        say("{\"event\":\"done\",\"count\":" + done.size() + "}");
    }

    /** Acks what one request brings, but for what `change` and `forget` say. */
    static void take(SimpleConsumer consumer, Set<Integer> done) throws Exception {
        int change = number("change", 0);
        for (MessageView message : consumer.receive(16, Duration.ofSeconds(number("invisible", 15)))) {
            sayReceived(message);
            if (change > 0 && message.getDeliveryAttempt() == 1) {
                consumer.changeInvisibleDuration(message, Duration.ofSeconds(change));
            } else if (message.getDeliveryAttempt() > number("forget", 0)) {
                consumer.ack(message);
                done.add(numberOf(message));
            }
        }
    }
}
