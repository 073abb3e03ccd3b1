package org.apache.rocketmq.test.base;

import java.lang.reflect.Proxy;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * A broker in another process, in the place of one in the process of the tests. What
 * tests read and change of it are requests; other members of the class are empty.
 */
class RemoteBroker extends BrokerController {
    private static final int TIMEOUT_MS = 30_000;

    private final DefaultMQAdminExt admin;
    private final String name;
    private final String address;
    private final BrokerConfig config;
    private final MessageStoreConfig storeConfig;
    private final MessageStore store;
    private final TopicConfigManager topics;
    private final ConsumerOffsetManager offsets;

    RemoteBroker(DefaultMQAdminExt admin, String name) throws Exception {
        super(named(new BrokerConfig(), name), new NettyServerConfig(), new NettyClientConfig(), ownFolder(name));
        this.admin = admin;
        this.name = name;
        address = admin.examineBrokerClusterInfo().getBrokerAddrTable().get(name).getBrokerAddrs().get(0L);
        config = named(new Keys(), name);
        storeConfig = new StoreKeys();
        store = (MessageStore) Proxy.newProxyInstance(
            RemoteBroker.class.getClassLoader(), new Class<?>[] {MessageStore.class}, (proxy, method, arguments) -> {
                switch (method.getName()) {
                    case "getMaxOffsetInQueue":
                        return admin.maxOffset(queue(arguments));
                    case "getMinOffsetInQueue":
                        return admin.minOffset(queue(arguments));
                    case "dispatchBehindBytes":
                        return 0L;
                    default:
                        throw new UnsupportedOperationException(method.getName() + " needs the broker's process");
                }
            });
        topics = new TopicConfigManager() {
            @Override
            public ConcurrentMap<String, TopicConfig> getTopicConfigTable() {
                return ask(() -> admin.getAllTopicConfig(address, TIMEOUT_MS).getTopicConfigTable());
            }

            @Override
            public void updateTopicConfig(TopicConfig topic) {
                ask(() -> {
                    admin.createAndUpdateTopicConfig(address, topic);
                    return null;
                });
            }
        };
        offsets = new ConsumerOffsetManager() {
            @Override
            public long queryOffset(String group, String topic, int queueId) {
                QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
                header.setConsumerGroup(group);
                header.setTopic(topic);
                header.setQueueId(queueId);
                return ask(() -> admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
                    .queryConsumerOffset(address, header, TIMEOUT_MS));
            }

            @Override
            public long queryPullOffset(String group, String topic, int queueId) {
                MessageQueue queue = new MessageQueue(topic, name, queueId);
                return ask(() -> admin.examineConsumeStats(address, group, topic, TIMEOUT_MS)
                    .getOffsetTable().get(queue).getPullOffset());
            }
        };
    }

    private static <T extends BrokerConfig> T named(T config, String name) {
        config.setBrokerName(name);
        config.setBrokerIP1("127.0.0.1");
        return config;
    }

    private static MessageStoreConfig ownFolder(String name) {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(System.getProperty("java.io.tmpdir") + "/" + name);
        return config;
    }

    private MessageQueue queue(Object[] arguments) {
        return new MessageQueue((String) arguments[0], name, (Integer) arguments[1]);
    }

    private static <T> T ask(Callable<T> request) {
        try {
            return request.call();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    private void change(String key, Object value) {
        if (address == null) {
            return;
        }
        Properties keys = new Properties();
        keys.setProperty(key, String.valueOf(value));
        try {
            admin.updateBrokerConfig(address, keys);
        } catch (Exception error) {
            System.out.println(name + " does not change " + keys + ": " + error);
        }
    }

    @Override
    public String getBrokerAddr() {
        return address == null ? super.getBrokerAddr() : address;
    }

    @Override
    public BrokerConfig getBrokerConfig() {
        return config == null ? super.getBrokerConfig() : config;
    }

    @Override
    public MessageStoreConfig getMessageStoreConfig() {
        return storeConfig == null ? super.getMessageStoreConfig() : storeConfig;
    }

    @Override
    public MessageStore getMessageStore() {
        return store == null ? super.getMessageStore() : store;
    }

    @Override
    public TopicConfigManager getTopicConfigManager() {
        return topics == null ? super.getTopicConfigManager() : topics;
    }

    @Override
    public ConsumerOffsetManager getConsumerOffsetManager() {
        return offsets == null ? super.getConsumerOffsetManager() : offsets;
    }

    @Override
    public synchronized void registerBrokerAll(boolean checkOrder, boolean isOneway, boolean isForced) {
        // a broker registers each change itself
    }

    @Override
    public void shutdown() {
    }

    /** Keys that tests change. */
    private class Keys extends BrokerConfig {
        @Override
        public void setUseSeparateRetryQueue(boolean value) {
            super.setUseSeparateRetryQueue(value);
            change("useSeparateRetryQueue", value);
        }

        @Override
        public void setPriorityOrderAsc(boolean value) {
            super.setPriorityOrderAsc(value);
            change("priorityOrderAsc", value);
        }

        @Override
        public void setPopFromRetryProbabilityForPriority(int value) {
            super.setPopFromRetryProbabilityForPriority(value);
            change("popFromRetryProbabilityForPriority", value);
        }

        @Override
        public void setEnablePopBufferMerge(boolean value) {
            super.setEnablePopBufferMerge(value);
            change("enablePopBufferMerge", value);
        }

        @Override
        public void setPopConsumerKVServiceEnable(boolean value) {
            super.setPopConsumerKVServiceEnable(value);
            change("popConsumerKVServiceEnable", value);
        }

        @Override
        public void setUseServerSideResetOffset(boolean value) {
            super.setUseServerSideResetOffset(value);
            change("useServerSideResetOffset", value);
        }

        @Override
        public void setLongPollingEnable(boolean value) {
            super.setLongPollingEnable(value);
            change("longPollingEnable", value);
        }

        @Override
        public void setShortPollingTimeMills(long value) {
            super.setShortPollingTimeMills(value);
            change("shortPollingTimeMills", value);
        }

        @Override
        public void setEnableSingleTopicRegister(boolean value) {
            super.setEnableSingleTopicRegister(value);
            change("enableSingleTopicRegister", value);
        }

        @Override
        public void setEnableSplitRegistration(boolean value) {
            super.setEnableSplitRegistration(value);
            change("enableSplitRegistration", value);
        }
    }

    /** Keys of the store that tests change. */
    private class StoreKeys extends MessageStoreConfig {
        @Override
        public void setAppendTopicForTimerDeleteKey(boolean value) {
            super.setAppendTopicForTimerDeleteKey(value);
            change("appendTopicForTimerDeleteKey", value);
        }

        @Override
        public void setEnableBuildConsumeQueueConcurrently(boolean value) {
            super.setEnableBuildConsumeQueueConcurrently(value);
            change("enableBuildConsumeQueueConcurrently", value);
        }
    }
}
