import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Sends COUNT messages, each attempt with a time limit in ms; prints where each one is. */
public class Retries {
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-retries");
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(30_000);
        producer.setSendMsgMaxTimeoutPerRequest(Integer.parseInt(args[3]));
        producer.setRetryTimesWhenSendFailed(20);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[2]); i++) {
            byte[] body = Integer.toString(i).getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(args[1], body));
            System.out.println("sent " + i + " " + result.getSendStatus() + " " + result.getMsgId() + " "
                + result.getOffsetMsgId() + " " + result.getMessageQueue().getQueueId() + " "
                + result.getQueueOffset());
        }
        producer.shutdown();
    }
}
