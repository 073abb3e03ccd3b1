import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Sends a message and receives it. */
public class Hello {
    private static final String TEXT = "hello from Java";

    public static void main(String[] args) throws Exception {
        String nameServer = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");

        DefaultMQProducer producer = new DefaultMQProducer("hello-java-producer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        Message message = new Message("Hello", "greeting", "hello-1", TEXT.getBytes(StandardCharsets.UTF_8));
        System.out.println("sent " + producer.send(message).getMsgId());
        producer.shutdown();

        CountDownLatch arrived = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("hello-java-consumer");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Hello", "greeting");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String text = new String(each.getBody(), StandardCharsets.UTF_8);
                if (text.equals(TEXT)) {
                    System.out.println("received: " + text);
                    arrived.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean hasArrived = arrived.await(30, TimeUnit.SECONDS);
        consumer.shutdown();
        if (!hasArrived) {
            throw new IllegalStateException("no message came in 30 s");
        }
    }
}
