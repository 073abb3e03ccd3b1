import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * AsyncLoad NAMESRV TOPIC SECONDS ROUNDS: Java's producer, asynchronous, with 256 messages on their way.
 *
 * Each round waits for a line of standard input; it prints how many messages were sent, and in how many ns.
 */
public class AsyncLoad {
    static final int WINDOW = 256;
    static final int BODY = 128;
    static final AtomicReference<Throwable> FAILED = new AtomicReference<>();

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("async-load");
        producer.setNamesrvAddr(args[0]);
        producer.start();
        System.out.println("ready");
        for (int round = 0; round < Integer.parseInt(args[3]); round++) {
            System.in.read();
            long began = System.nanoTime();
            long count = send(producer, args[1], began + (long) (Double.parseDouble(args[2]) * 1e9));
            if (FAILED.get() != null) {
                FAILED.get().printStackTrace();
                System.exit(1);
            }
            System.out.println(count + " " + (System.nanoTime() - began));
        }
        System.exit(0); // the client's threads would go on
    }

    static long send(DefaultMQProducer producer, String topic, long end) throws Exception {
        Semaphore room = new Semaphore(WINDOW);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                FAILED.set(error);
                room.release();
            }
        };
        long count = 0;
        for (; System.nanoTime() < end; count++) {
            room.acquire();
            producer.send(new Message(topic, new byte[BODY]), callback);
        }
        room.acquire(WINDOW);
        return count;
    }
}
