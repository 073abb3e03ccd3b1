import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/** What every interop client sends as message number i, and how it digests what it got. */
public class Bodies {
    static String body(int i) {
        return "message " + i + " \u65e5\u672c\u8a9e \u00e9 \ud83d\ude00 " + "x".repeat(i % 200);
    }

    static String digest(byte[] body, String tags, String keys) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        sha.update(body);
        sha.update((byte) 0);
        sha.update(tags.getBytes(StandardCharsets.UTF_8));
        sha.update((byte) 0);
        sha.update(keys.getBytes(StandardCharsets.UTF_8));
        StringBuilder text = new StringBuilder();
        for (byte each : sha.digest()) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }
}
