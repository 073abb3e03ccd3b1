import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * ProxyLoad ENDPOINTS TOPIC GROUP COUNT ROUNDS: a producer and a simple consumer of the 5.x SDK.
 *
 * Each round waits for a line of standard input, sends COUNT messages with 64 on their way, then receives and acks
 * them with 4 threads; it prints the messages a second of both.
 */
public class ProxyLoad {
    static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    static final int WINDOW = 64;
    static final int THREADS = 4;
    static final AtomicReference<Throwable> FAILED = new AtomicReference<>();
    static String topic;

    public static void main(String[] args) throws Exception {
        topic = args[1];
        ClientConfiguration configuration = ClientConfiguration.newBuilder().setEndpoints(args[0]).enableSsl(false)
            .setRequestTimeout(Duration.ofSeconds(10)).build();
        Producer producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
            .build();
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(args[2]).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL)).build();
        Thread.sleep(2_000); // the proxy serves a consumer whose settings it has
        System.out.println("ready");
        int count = Integer.parseInt(args[3]);
        for (int round = 0; round < Integer.parseInt(args[4]); round++) {
            System.in.read();
            double sent = rate(count, send(producer, count));
            double received = rate(count, receive(consumer, count));
            System.out.println(Math.round(sent) + " " + Math.round(received));
        }
        System.exit(0); // the client's threads would go on
    }

    static double rate(int count, long nanos) {
        if (FAILED.get() != null) {
            FAILED.get().printStackTrace();
            System.exit(1);
        }
        return count * 1e9 / nanos;
    }

    static long send(Producer producer, int count) throws Exception {
        Semaphore room = new Semaphore(WINDOW);
        byte[] body = new byte[128];
        long began = System.nanoTime();
        for (int i = 0; i < count && FAILED.get() == null; i++) {
            room.acquire();
            producer.sendAsync(PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build())
                .whenComplete((receipt, error) -> {
                    if (error != null) {
                        FAILED.set(error);
                    }
                    room.release();
                });
        }
        room.acquire(WINDOW);
        return System.nanoTime() - began;
    }

    static long receive(SimpleConsumer consumer, int count) throws Exception {
        AtomicInteger left = new AtomicInteger(count);
        AtomicLong ended = new AtomicLong();
        List<Thread> threads = new ArrayList<>();
        long began = System.nanoTime();
        for (int i = 0; i < THREADS; i++) {
            Thread thread = new Thread(() -> take(consumer, left, ended));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join(); // also those whose last question nobody can answer
        }
        return ended.get() - began;
    }

    /** Acks what comes, the messages of an answer together, until all are acked; notes when. */
    static void take(SimpleConsumer consumer, AtomicInteger left, AtomicLong ended) {
        try {
            while (left.get() > 0 && FAILED.get() == null) {
                List<CompletableFuture<Void>> acks = new ArrayList<>();
                for (MessageView message : consumer.receive(32, Duration.ofSeconds(60))) {
                    acks.add(consumer.ackAsync(message));
                }
                for (CompletableFuture<Void> ack : acks) {
                    ack.join();
                }
                if (left.addAndGet(-acks.size()) <= 0) {
                    ended.compareAndSet(0, System.nanoTime());
                }
            }
        } catch (Exception error) {
            FAILED.set(error);
        }
    }
}
