package rmq.junit;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.extension.AfterAllCallback;
import org.junit.jupiter.api.extension.BeforeAllCallback;
import org.junit.jupiter.api.extension.ExtensionContext;

/**
 * A broker with its own name server for the tests of a class.
 *
 * <pre>
 * &#64;RegisterExtension
 * static final RmqExtension RMQ = new RmqExtension("enablePropertyFilter=true");
 * </pre>
 *
 * The field must be static. Each word is a key of the broker with its value. The ports are free ones, and the store
 * is a temporary folder. The system property <code>rmq.command</code> is the command, if it is not <code>rmq</code>.
 */
public final class RmqExtension implements BeforeAllCallback, AfterAllCallback {
    private static final Pattern READY = Pattern.compile("ready broker=\\S+ address=(\\S+) namesrv=(\\S+)");
    private static final long STOP_SECONDS = 30;

    private final String[] settings;
    private Process process;
    private Path store;
    private String address;
    private String nameServer;

    public RmqExtension(String... settings) {
        this.settings = settings.clone();
    }

    /** The address of the name server, for setNamesrvAddr. */
    public String nameServer() {
        return nameServer;
    }

    /** The address of the broker. */
    public String address() {
        return address;
    }

    @Override
    public void beforeAll(ExtensionContext context) throws IOException {
        store = Files.createTempDirectory("rmq-");
        List<String> command = new ArrayList<>(Arrays.asList(System.getProperty("rmq.command", "rmq").split(" ")));
        command.add("broker");
        Stream<String> own = Stream.of("listenPort=0", "rmq.namesrv.listenPort=0", "storePathRootDir=" + store);
        Stream.concat(own, Stream.of(settings)).forEach(each -> command.addAll(List.of("--set", each)));
        process = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        // the broker ends with this JVM, however that ends
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
        waitUntilReady();
    }

    private void waitUntilReady() throws IOException {
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8));
        List<String> seen = new ArrayList<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Matcher ready = READY.matcher(line);
            if (ready.find()) {
                address = ready.group(1);
                nameServer = ready.group(2);
                drain(lines);
                return;
            }
            seen.add(line);
        }
        throw new IllegalStateException("rmq did not start:\n" + String.join("\n", seen));
    }

    /** Reads what the broker logs, so that it never waits for us. */
    private static void drain(BufferedReader lines) {
        Thread reader = new Thread(() -> {
            try {
                while (lines.readLine() != null) {
                    continue;
                }
            } catch (IOException end) {
                // the broker has stopped, and its stream is closed
            }
        }, "rmq-log");
        reader.setDaemon(true);
        reader.start();
    }

    @Override
    public void afterAll(ExtensionContext context) throws Exception {
        process.destroy();
        if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
        }
        try (Stream<Path> files = Files.walk(store)) {
            List<File> deepestFirst =
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).collect(Collectors.toList());
            deepestFirst.forEach(File::delete);
        }
    }
}
