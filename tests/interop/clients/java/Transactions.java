import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Of three transactions one is committed, one rolled back, and of one the outcome is told later. */
public class Transactions implements TransactionListener {
    static TransactionMQProducer producer(String group) {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setTransactionListener(new Transactions());
        return producer;
    }

    @Override
    public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
        switch (number(message) % 3) {
            case 0:
                return LocalTransactionState.COMMIT_MESSAGE;
            case 1:
                return LocalTransactionState.ROLLBACK_MESSAGE;
            default:
                return LocalTransactionState.UNKNOW;
        }
    }

    @Override
    public LocalTransactionState checkLocalTransaction(MessageExt message) {
        Driver.say("{\"event\":\"checked\",\"number\":" + number(message) + "}");
        if (Driver.isHeld()) {
            return LocalTransactionState.UNKNOW;
        }
        return number(message) % 3 == 1 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
    }

    private static int number(Message message) {
        return Integer.parseInt(message.getUserProperty("number"));
    }
}
