import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Sends COUNT messages and prints one line for each that was acknowledged. */
public class QuickProducer {
    public static void main(String[] args) throws Exception {
        String nameServer = args[0];
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        int pauseMs = args.length > 4 ? Integer.parseInt(args[4]) : 0;
        boolean printsEach = args.length > 3 && args[3].equals("each");
        DefaultMQProducer producer = new DefaultMQProducer("interop-java-producer");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        Set<String> brokers = new HashSet<>();
        int sent = 0;
        for (int i = 0; i < count; i++) {
            byte[] body = Bodies.body(i).getBytes(StandardCharsets.UTF_8);
            Message message = new Message(topic, "Tag" + i % 3, "Key" + i, body);
            message.putUserProperty("number", Integer.toString(i));
            message.putUserProperty("name", topic);
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    sent++;
                    brokers.add(result.getMessageQueue().getBrokerName());
                    if (printsEach) {
                        Thread.sleep(pauseMs);
                        System.out.println("acked " + i + " " + result.getMessageQueue().getBrokerName()
                            + " " + result.getMessageQueue().getQueueId() + " " + result.getQueueOffset());
                        System.out.flush();
                    }
                }
            } catch (Exception error) {
                System.out.println("failed " + i + " " + error.getClass().getSimpleName());
                System.out.flush();
                if (printsEach) {
                    Thread.sleep(20);
                }
            }
        }
        System.out.println("sent " + sent + " brokers " + String.join(",", new java.util.TreeSet<>(brokers)));
        producer.shutdown();
    }
}
