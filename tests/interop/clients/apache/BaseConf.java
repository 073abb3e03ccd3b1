package org.apache.rocketmq.test.base;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.test.client.rmq.RMQNormalConsumer;
import org.apache.rocketmq.test.client.rmq.RMQNormalProducer;
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
    protected static BrokerController brokerController1, brokerController2, brokerController3;
    protected static List<BrokerController> brokerControllerList = new ArrayList<>();
    private static final List<Object> CLIENTS = new ArrayList<>();

    static {
        System.setProperty("rocketmq.client.name", "it-" + UUID.randomUUID());
    }

    public static void waitBrokerRegistered(String nameServer, String cluster, int count) {
    }

    public boolean awaitDispatchMs(long ms) {
        return true;
    }

    public static Set<String> getBrokers() {
        return new TreeSet<>(NAMES);
    }

    public static String initConsumerGroup() {
        String group = "group-" + UUID.randomUUID();
        return group;
    }

    public static DefaultMQAdminExt getAdmin(String nameServer) {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(3 * 1000);
        admin.setInstanceName(UUID.randomUUID().toString());
        admin.setNamesrvAddr(nameServer);
        admin.setPollNameServerInterval(100);
        CLIENTS.add(admin);
        return admin;
    }

    public static RMQNormalProducer getProducer(String nameServer, String topic) {
        RMQNormalProducer producer = new RMQNormalProducer(nameServer, topic, false);
        CLIENTS.add(producer);
        return producer;
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String group, String topic, String tags, AbstractListener listener) {
        RMQNormalConsumer consumer = new RMQNormalConsumer(nameServer, topic, tags, group, listener);
        consumer.create();
        consumer.start();
        CLIENTS.add(consumer);
        return consumer;
    }

    public static RMQNormalConsumer getConsumer(String nameServer, String topic, String tags, AbstractListener listener) {
        return getConsumer(nameServer, initConsumerGroup(), topic, tags, listener);
    }

    public static void shutdown() {
        for (Object client : CLIENTS) {
            if (client instanceof DefaultMQAdminExt) {
                ((DefaultMQAdminExt) client).shutdown();
            } else if (client instanceof RMQNormalProducer) {
                ((RMQNormalProducer) client).shutdown();
            } else {
                ((RMQNormalConsumer) client).shutdown();
            }
        }
        CLIENTS.clear();
    }
}
