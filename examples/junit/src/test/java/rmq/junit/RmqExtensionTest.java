package rmq.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class RmqExtensionTest {
    @RegisterExtension
    static final RmqExtension RMQ = new RmqExtension("enablePropertyFilter=true");

    @Test
    void messagesThatMatchAreReceived() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("orders-producer");
        producer.setNamesrvAddr(RMQ.nameServer());
        producer.start();
        for (String color : new String[] {"red", "blue"}) {
            Message message = new Message("Orders", color.getBytes(StandardCharsets.UTF_8));
            message.putUserProperty("color", color);
            assertEquals(SendStatus.SEND_OK, producer.send(message).getSendStatus());
        }
        producer.shutdown();

        BlockingQueue<String> received = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("orders-consumer");
        consumer.setNamesrvAddr(RMQ.nameServer());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("Orders", MessageSelector.bySql("color = 'blue'"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(each -> received.add(new String(each.getBody(), StandardCharsets.UTF_8)));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        assertEquals("blue", received.poll(30, TimeUnit.SECONDS));
        consumer.shutdown();
        assertTrue(received.isEmpty());
    }
}
