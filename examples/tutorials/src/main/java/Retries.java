import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** A consumer that fails twice with one message, which then goes to its dead letters. */
public class Retries {
    public static void main(String[] args) throws Exception {
        String nameServer = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
        DefaultMQProducer producer = new DefaultMQProducer("payments-producer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        producer.send(new Message("Payments", "one that fails".getBytes(StandardCharsets.UTF_8)));
        producer.shutdown();

        CountDownLatch failures = new CountDownLatch(2);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("ledger");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe("Payments", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                System.out.println("failed, after " + each.getReconsumeTimes() + " retries: " + new String(each.getBody()));
                failures.countDown();
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        failures.await();
        Thread.sleep(1000); // the second failure must reach the broker
        consumer.shutdown();
    }
}
