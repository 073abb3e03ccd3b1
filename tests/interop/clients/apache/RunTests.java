import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.junit.runner.Description;
import org.junit.runner.JUnitCore;
import org.junit.runner.Request;
import org.junit.runner.Result;
import org.junit.runner.manipulation.Filter;
import org.junit.runner.notification.Failure;
import org.junit.runner.notification.RunListener;

/** Runs a class of tests without some of them: class name, names of tests to leave out. */
public class RunTests {
    public static void main(String[] args) {
        try {
            run(args);
        } catch (Throwable error) {
            error.printStackTrace();
            System.out.println("\nFAILED *");
            System.exit(2);
        }
    }

    private static void run(String[] args) throws Exception {
        Set<String> leftOut = new HashSet<>(Arrays.asList(args).subList(1, args.length));
        Request request = Request.aClass(Class.forName(args[0])).filterWith(new Filter() {
            @Override
            public boolean shouldRun(Description test) {
                return !leftOut.contains(test.getMethodName());
            }

            @Override
            public String describe() {
                return "all but " + leftOut;
            }
        });
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            private final Set<String> failed = new HashSet<>();

            @Override
            public void testFailure(Failure failure) {
                String name = failure.getDescription().getMethodName();
                failed.add(name);
                System.out.println("\nFAILED " + name + "\n" + failure.getTrace());
            }

            @Override
            public void testAssumptionFailure(Failure failure) {
                failed.add(failure.getDescription().getMethodName());
                System.out.println("\nIGNORED " + failure.getDescription().getMethodName());
            }

            @Override
            public void testIgnored(Description test) {
                System.out.println("\nIGNORED " + test.getMethodName());
            }

            @Override
            public void testFinished(Description test) {
                if (!failed.contains(test.getMethodName())) {
                    System.out.println("\nPASSED " + test.getMethodName());
                }
            }
        });
        Result result = core.run(request);
        System.out.println("ran " + result.getRunCount() + ", failed " + result.getFailureCount());
        System.exit(result.wasSuccessful() ? 0 : 1);
    }
}
