import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** Runs mqadmin commands, one a line of input with U+0001 between arguments; answers each with its output in base64. */
public class AdminRun {
    public static void main(String[] ignored) throws Exception {
        PrintStream out = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(capture);
            System.setErr(capture);
            String[] arguments = line.split("\u0001");
            Thread thread = new Thread(() -> {
                try {
                    MQAdminStartup.main0(arguments, null);
                } catch (Throwable error) {
                    error.printStackTrace(capture);
                }
            });
            thread.setDaemon(true);
            thread.start();
            thread.join(20_000);
            if (thread.isAlive()) {
                capture.println("NOT FINISHED");
            }
            out.println(Base64.getEncoder().encodeToString(said.toByteArray()));
            out.flush();
        }
        System.exit(0);
    }
}
