package rmq.containers;

import java.io.IOException;
import java.net.ServerSocket;
import org.testcontainers.containers.FixedHostPortGenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;

/**
 * A broker with its own name server in a container.
 *
 * A broker tells clients its own address, so the port inside must be the port outside: both are chosen before the
 * start.
 *
 * <pre>
 * try (RmqContainer rmq = new RmqContainer("rmq")) {
 *     rmq.start();
 *     producer.setNamesrvAddr(rmq.nameServer());
 * }
 * </pre>
 */
public final class RmqContainer extends FixedHostPortGenericContainer<RmqContainer> {
    private static final int NAME_SERVER_PORT = 9876;

    private final int brokerPort;

    public RmqContainer(String image) {
        super(image);
        brokerPort = freePort();
        withFixedExposedPort(brokerPort, brokerPort);
        withExposedPorts(NAME_SERVER_PORT);
        withCommand(
            "broker", "-c", "/etc/rmq/broker.conf", "--set", "listenPort=" + brokerPort,
            "--advertise", "127.0.0.1:" + brokerPort);
        waitingFor(Wait.forLogMessage(".*ready broker=.*", 1));
    }

    /** The address of the name server, for setNamesrvAddr. */
    public String nameServer() {
        return getHost() + ":" + getMappedPort(NAME_SERVER_PORT);
    }

    private static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
