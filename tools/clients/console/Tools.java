// Runs Kafka's console tools, one after the other, in one JVM (see ../console.py): takes a tool's class, its arguments
// and its input as a JSON object in a line, and answers with what it printed and how it ended.

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import javax.management.InstanceNotFoundException;
import javax.management.ObjectName;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long POLL_MS = 10;

    private static final PrintStream answers = System.out;
    private static final List<Runnable> shutdownHooks = new CopyOnWriteArrayList<>();
    private static volatile CompletableFuture<Integer> ended;

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        Exit.setShutdownHookAdder((name, hook) -> shutdownHooks.add(hook));
        say(Map.of("version", AppInfoParser.getVersion()));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            say(run(JSON.readTree(line)));
        }
        System.exit(0);
    }

    private static Map<String, Object> run(JsonNode request) throws Exception {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream complaints = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(request.get("input").textValue().getBytes(ISO_8859_1)));
        System.setOut(new PrintStream(output, true));
        System.setErr(new PrintStream(complaints, true));
        String[] arguments = JSON.convertValue(request.get("arguments"), String[].class);
        ended = new CompletableFuture<>();
        Thread tool = new Thread(() -> run(request.get("tool").textValue(), arguments));
        tool.setDaemon(true);
        tool.start();
        if (request.hasNonNull("consumer")) {
            sayWhenItFetches(request.get("consumer").textValue());
        }
        int status = ended.get();
        shutdownHooks.forEach(Runnable::run);
        shutdownHooks.clear();
        return Map.of(
            "status", status, "output", output.toString(ISO_8859_1), "complaints", complaints.toString(UTF_8));
    }

    private static void run(String tool, String[] arguments) {
        int status = 0;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            status = 1;
        }
        ended.complete(status);
    }

    // A tool leaves by ending its JVM, after which nothing of it runs but its hooks. Here its thread sleeps on.
    private static void end(int status) {
        ended.complete(status);
        while (true) {
            LockSupport.park();
        }
    }

    // A consumer whose first fetch was answered has found its position.
    private static void sayWhenItFetches(String clientId) throws Exception {
        ObjectName metrics = new ObjectName("kafka.consumer:type=consumer-fetch-manager-metrics,client-id=" + clientId);
        while (!ended.isDone()) {
            try {
                Object fetches = ManagementFactory.getPlatformMBeanServer().getAttribute(metrics, "fetch-total");
                if (((Number) fetches).doubleValue() > 0) {
                    say(Map.of("ready", -1));
                    return;
                }
            } catch (InstanceNotFoundException notYet) {
                // The tool is still starting.
            }
            Thread.sleep(POLL_MS);
        }
    }

    private static void say(Map<String, Object> words) throws Exception {
        answers.println(JSON.writeValueAsString(words));
        answers.flush();
    }
}
