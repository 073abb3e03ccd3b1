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
    public static void main(String[] args) throws Exception {
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
            @Override
            public void testFailure(Failure failure) {
                System.out.println("FAILED " + failure.getDescription().getMethodName() + "\n" + failure.getTrace());
            }
        });
        Result result = core.run(request);
        System.out.println("ran " + result.getRunCount() + ", failed " + result.getFailureCount());
        System.exit(result.wasSuccessful() ? 0 : 1);
    }
}
