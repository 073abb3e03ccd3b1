import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;

/** What every interop client sends as message number i, and how it digests what it got. */
public class Bodies {
    static final String NAME = "\u65e5\u672c \u00e9 \ud83d\ude00";
    private static final String LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    static String body(int i) {
        return "message " + i + " \u65e5\u672c\u8a9e \u00e9 \ud83d\ude00 " + "x".repeat(i % 200);
    }

    /** The body of number i, followed by letters that do not compress until it has `size` bytes. */
    static String body(int i, int size) {
        StringBuilder text = new StringBuilder(body(i));
        int state = i;
        for (int left = size - text.toString().getBytes(StandardCharsets.UTF_8).length; left > 0; left--) {
            state = (state * 1103515245 + 12345) & 0x7fffffff;
            text.append(LETTERS.charAt((state >> 16) & 63));
        }
        return text.toString();
    }

    static String digest(byte[] body, String... texts) throws Exception {
        MessageDigest sha = MessageDigest.getInstance("SHA-256");
        sha.update(body);
        for (String text : texts) {
            sha.update((byte) 0);
            sha.update(text.getBytes(StandardCharsets.UTF_8));
        }
        StringBuilder hex = new StringBuilder();
        for (byte each : sha.digest()) {
            hex.append(String.format("%02x", each));
        }
        return hex.toString();
    }
}
