import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends a message again, as after a lost answer; the topic stores it once. */
public class Once {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("once-java-producer");
        producer.setNamesrvAddr(System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876"));
        producer.start();
        Message order = new Message("Orders", "order 17".getBytes(StandardCharsets.UTF_8));
        SendResult first = producer.send(order);
        SendResult again = producer.send(order); // the same object has the same key
        producer.shutdown();
        System.out.println("first " + first.getMessageQueue().getQueueId() + " at " + first.getQueueOffset());
        System.out.println("again " + again.getMessageQueue().getQueueId() + " at " + again.getQueueOffset());
        if (!first.getOffsetMsgId().equals(again.getOffsetMsgId())) {
            throw new IllegalStateException("the topic stored the message twice");
        }
        System.out.println("stored once");
    }
}
