import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Receives COUNT messages and prints one digest a line, then "received n". */
public class QuickPushConsumer {
    public static void main(String[] args) throws Exception {
        int count = Integer.parseInt(args[2]);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[3]);
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[1], "*");
        Set<String> seen = ConcurrentHashMap.newKeySet();
        CountDownLatch left = new CountDownLatch(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    if (seen.add(message.getMsgId())) {
                        System.out.println(Bodies.digest(message.getBody(), message.getTags(), message.getKeys()));
                        left.countDown();
                    }
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        left.await(Long.parseLong(args[4]), TimeUnit.SECONDS);
        consumer.shutdown();
        System.out.println("received " + seen.size());
    }
}
