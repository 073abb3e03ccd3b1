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
        print("PLANNED", request.getRunner().getDescription());
        JUnitCore core = new JUnitCore();
        core.addListener(new RunListener() {
            private final Set<String> failed = new HashSet<>();

            @Override
            public void testStarted(Description test) {
                print("STARTED", test);
            }

            @Override
            public void testFailure(Failure failure) {
                failed.add(failure.getDescription().getMethodName());
                print("FAILED", failure.getDescription());
                System.out.println(failure.getTrace());
            }

            @Override
            public void testAssumptionFailure(Failure failure) {
                failed.add(failure.getDescription().getMethodName());
                print("IGNORED", failure.getDescription());
            }

            @Override
            public void testIgnored(Description test) {
                print("IGNORED", test);
            }

            @Override
            public void testFinished(Description test) {
                if (!failed.contains(test.getMethodName())) {
                    print("PASSED", test);
                }
            }
        });
        Result result = core.run(request);
        System.out.println("ran " + result.getRunCount() + ", failed " + result.getFailureCount());
        System.exit(result.wasSuccessful() ? 0 : 1);
    }

    private static void print(String word, Description description) {
        if (description.isSuite()) {
            description.getChildren().forEach(child -> print(word, child));
        } else {
            System.out.println("\n" + word + " " + description.getMethodName());
        }
    }
}
