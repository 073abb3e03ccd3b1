package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.consumer.MQPullConsumer;
import org.apache.rocketmq.client.consumer.MQPushConsumer;
import org.apache.rocketmq.client.producer.MQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.test.client.rmq.RMQAsyncSendProducer;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
import org.apache.rocketmq.test.client.rmq.RMQTransactionalProducer;
import org.apache.rocketmq.test.clientinterface.AbstractMQConsumer;
import org.apache.rocketmq.test.clientinterface.AbstractMQProducer;
import org.apache.rocketmq.test.factory.ConsumerFactory;
import org.apache.rocketmq.test.listener.AbstractListener;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The base of Apache's integration tests, for brokers that run already: the property
 * "rmq.brokers" has their names, "rmq.nameServer" the address of their name server.
 */
public class BaseConf {
    public static final String NAMESRV_ADDR = System.getProperty("rmq.nameServer");
    protected static final String CLUSTER_NAME = "DefaultCluster";
    private static final List<String> NAMES = Arrays.asList(System.getProperty("rmq.brokers").split(","));
    protected static final String BROKER1_NAME = NAMES.get(0);
    protected static final String BROKER2_NAME = NAMES.get(1);
    protected static final String BROKER3_NAME = NAMES.get(2);
    protected static final int BROKER_NUM = 3;
    protected static final int WAIT_TIME = 5;
    protected static final int CONSUME_TIME = 2 * 60 * 1000;
    protected static final int QUEUE_NUMBERS = 8;
    private static final DefaultMQAdminExt ADMIN = new DefaultMQAdminExt(60 * 1000);
    protected static NamesrvController namesrvController;
    protected static BrokerController brokerController1, brokerController2, brokerController3;
    protected static List<BrokerController> brokerControllerList = new ArrayList<>();
    protected static Map<String, BrokerController> brokerControllerMap = new ConcurrentHashMap<>();
    protected static List<Object> mqClients = new ArrayList<>();
    protected static boolean debug = false;

    static {
        try {
            ADMIN.setInstanceName(UUID.randomUUID().toString());
            ADMIN.setNamesrvAddr(NAMESRV_ADDR);
            ADMIN.start();
            for (String name : NAMES) {
                BrokerController broker = new RemoteBroker(ADMIN, name);
                brokerControllerList.add(broker);
                brokerControllerMap.put(name, broker);
            }
            namesrvController = new RemoteNameServer();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        brokerController1 = brokerControllerList.get(0);
        brokerController2 = brokerControllerList.get(1);
        brokerController3 = brokerControllerList.get(2);
        IntegrationTestBase.initMQAdmin(NAMESRV_ADDR);
    }

    /** A name server in another process: changes of its keys go there. */
    private static class RemoteNameServer extends NamesrvController {
        private final NamesrvConfig config;

        RemoteNameServer() {
            super(new NamesrvConfig(), new NettyServerConfig());
            config = new NamesrvConfig() {
                @Override
                public void setDeleteTopicWithBrokerRegistration(boolean value) {
                    super.setDeleteTopicWithBrokerRegistration(value);
                    Properties keys = new Properties();
                    keys.setProperty("deleteTopicWithBrokerRegistration", String.valueOf(value));
                    try {
                        ADMIN.updateNameServerConfig(keys, Arrays.asList(NAMESRV_ADDR));
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                }
            };
        }

        @Override
        public NamesrvConfig getNamesrvConfig() {
            return config == null ? super.getNamesrvConfig() : config;
        }
    }

    public static void waitBrokerRegistered(String nameServer, String cluster, int count) {
    }

    public boolean awaitDispatchMs(long ms) {
        return true;
    }

    public static Set<String> getBrokers() {
        return new TreeSet<>(NAMES);
    }

    // topics and groups

    private static String newName(String kind) {
        return kind + "-" + UUID.randomUUID();
    }

    public static String initTopic() {
        return initTopicWithName(newName("topic"));
    }

    public static String initTopic(TopicMessageType type) {
        return initTopicWithName(newName("topic"), type);
    }

    public static String initTopicWithName(String topic) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicWithName(String topic, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, CLUSTER_NAME, type);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String broker) {
        return initTopicOnSampleTopicBroker(newName("topic"), broker);
    }

    public static String initTopicOnSampleTopicBroker(String broker, TopicMessageType type) {
        return initTopicOnSampleTopicBroker(newName("topic"), broker, type);
    }

    public static String initTopicOnSampleTopicBroker(String topic, String broker) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, broker, CQType.SimpleCQ);
        return topic;
    }

    public static String initTopicOnSampleTopicBroker(String topic, String broker, TopicMessageType type) {
        IntegrationTestBase.initTopic(topic, NAMESRV_ADDR, broker, type);
        return topic;
    }

    public static String initConsumerGroup() {
        return initConsumerGroup(newName("group"));
    }

    public static String initConsumerGroup(String group) {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        return initConsumerGroup(config);
    }

    public static String initConsumerGroup(SubscriptionGroupConfig config) {
        // MQAdminTestUtils.createSub ignores errors
        for (BrokerController broker : brokerControllerList) {
            try {
                ADMIN.createAndUpdateSubscriptionGroupConfig(broker.getBrokerAddr(), config);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }
        return config.getGroupName();
    }

    // clients

    private static <T> T kept(T client) {
        mqClients.add(client);
        return client;
    }

    public static DefaultMQAdminExt getAdmin(String nameServer) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3 * 1000);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.setNamesrvAddr(nameServer);
        admin.setPollNameServerInterval(100);
        return kept(admin);
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic) {
        return getProducer(nameServer, topic, false);
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, boolean tls) {
        return kept(new RMQNormalProducer(nameServer, topic, tls));
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic, String group, String instance) {
        return kept(new RMQNormalProducer(nameServer, topic, group, instance));
    }

    public static RMQTransactionalProducer getTransactionalProducer(String nameServer, String topic, TransactionListener listener) {
        return kept(new RMQTransactionalProducer(nameServer, topic, false, listener));
    }

    public static RMQAsyncSendProducer getAsyncProducer(String nameServer, String topic) {
        return kept(new RMQAsyncSendProducer(nameServer, topic));
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String topic, String tags, AbstractListener listener) {
        return getConsumer(nameServer, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String topic, String tags, AbstractListener listener, boolean tls) {
        return getConsumer(nameServer, initConsumerGroup(), topic, tags, listener, tls);
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String group, String topic, String tags, AbstractListener listener) {
        return getConsumer(nameServer, group, topic, tags, listener, false);
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String group, String topic, String tags, AbstractListener listener, boolean tls) {
        return kept(ConsumerFactory.getRMQNormalConsumer(nameServer, group, topic, tags, listener, tls));
    }

    public static void shutdown() {
        List<Object> clients = new ArrayList<>(mqClients);
        mqClients.clear();
        shutdown(clients);
    }

    public static void shutdown(List<Object> clients) {
        for (Object client : clients) {
            if (client instanceof AbstractMQProducer) {
                ((AbstractMQProducer) client).shutdown();
            } else if (client instanceof AbstractMQConsumer) {
                ((AbstractMQConsumer) client).shutdown();
            } else if (client instanceof DefaultMQAdminExt) {
                ((DefaultMQAdminExt) client).shutdown();
            } else if (client instanceof MQProducer) {
                ((MQProducer) client).shutdown();
            } else if (client instanceof MQPullConsumer) {
                ((MQPullConsumer) client).shutdown();
            } else if (client instanceof MQPushConsumer) {
                ((MQPushConsumer) client).shutdown();
            }
        }
    }
}
