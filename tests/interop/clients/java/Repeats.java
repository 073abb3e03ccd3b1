import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/** Driver repeat: sends the same object until it is acknowledged, so it keeps its key. */
final class Repeats {
    private static volatile boolean isEnded;

    private Repeats() {
    }

    static void run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-repeats");
        producer.setNamesrvAddr(Driver.nameServer);
        producer.setPollNameServerInterval(1_000);
        producer.setRetryTimesWhenSendFailed(5);
        producer.start();
        Thread[] senders = new Thread[Driver.count];
        for (int i = 0; i < senders.length; i++) {
            int sender = i;
            senders[i] = new Thread(() -> send(producer, sender));
            senders[i].start();
        }
        while (System.in.read() >= 0) {
        }
        isEnded = true;
        for (Thread each : senders) {
            each.join();
        }
        producer.shutdown();
    }

    private static void send(DefaultMQProducer producer, int sender) {
        for (int number = 0; !isEnded; number++) {
            byte[] body = (sender + ":" + number).getBytes(StandardCharsets.UTF_8);
            SendResult result = repeat(producer, new Message(Driver.topic, body));
            sayLine("acknowledged " + sender + " " + number + " " + result.getMessageQueue().getQueueId()
                + " " + result.getQueueOffset());
        }
    }

    private static SendResult repeat(DefaultMQProducer producer, Message message) {
        while (true) {
            try {
                SendResult result = producer.send(message);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return result;
                }
            } catch (Exception error) {
                pause();
            }
            sayLine("failed");
        }
    }

    private static void pause() {
        try {
            Thread.sleep(50);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void sayLine(String text) {
        synchronized (Driver.OUT) {
            Driver.OUT.println(text);
            Driver.OUT.flush();
        }
    }
}
