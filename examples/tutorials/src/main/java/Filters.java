import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Receives the red ones of the topic Paints that cost more than 5. */
public class Filters {
    public static void main(String[] args) throws Exception {
        CountDownLatch arrived = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("painter");
        consumer.setNamesrvAddr(System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Paints", MessageSelector.bySql("color = 'red' AND price > 5"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> System.out.println(
                "received: " + new String(each.getBody(), StandardCharsets.UTF_8)));
            arrived.countDown();
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        arrived.await();
        consumer.shutdown();
    }
}
