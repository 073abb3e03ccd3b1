import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Three transactions: committed, rolled back, and one whose outcome the broker asks for. */
public class Transactions {
    public static void main(String[] args) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer producer = new TransactionMQProducer("bookings-producer");
        producer.setNamesrvAddr(System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876"));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object outcome) {
                // here the application changes its database; then it says how that went
                return (LocalTransactionState) outcome;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                // here the application looks into its database
                System.out.println("asked about: " + new String(message.getBody()));
                asked.countDown();
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        send(producer, "committed", LocalTransactionState.COMMIT_MESSAGE);
        send(producer, "rolled back", LocalTransactionState.ROLLBACK_MESSAGE);
        send(producer, "unknown at first", LocalTransactionState.UNKNOW);
        asked.await();
        Thread.sleep(1000); // the answer must reach the broker
        producer.shutdown();
    }

    private static void send(TransactionMQProducer producer, String text, LocalTransactionState outcome)
        throws Exception {
        Message message = new Message("Bookings", text.getBytes(StandardCharsets.UTF_8));
        System.out.println(text + ": " + producer.sendMessageInTransaction(message, outcome).getSendStatus());
    }
}
