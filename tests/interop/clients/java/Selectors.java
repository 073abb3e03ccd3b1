import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Says of each line (base64 expression, base64 properties) what Java makes of it. */
public class Selectors {
    public static void main(String[] args) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(args[0]))) {
            String[] parts = line.split("\t", -1);
            out.append(verdict(text(parts[0]), properties(text(parts[1])))).append('\n');
        }
        System.out.print(out);
    }

    private static String verdict(String selector, Map<String, String> properties) {
        Expression compiled;
        try {
            compiled = SelectorParser.parse(selector);
        } catch (Exception e) {
            return "invalid";
        }
        try {
            Object value = compiled.evaluate(new EvaluationContext() {
                @Override
                public Object get(String name) {
                    return properties.get(name);
                }

                @Override
                public Map<String, Object> keyValues() {
                    return null;
                }
            });
            return Boolean.TRUE.equals(value) ? "true" : "false";
        } catch (Exception e) {
            return "false";
        }
    }

    private static Map<String, String> properties(String text) {
        Map<String, String> found = new HashMap<>();
        for (String pair : text.split("\u0002")) {
            int at = pair.indexOf('\u0001');
            if (at > 0) {
                found.put(pair.substring(0, at), pair.substring(at + 1));
            }
        }
        return found;
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }
}
