// Sends one record to each of some partitions, once, and says what became of it: java Attempts.java takes a JSON object
// in a line (bootstrap, acks, idempotent, targets) and answers with one (outcomes).

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Attempts {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        say(JSON.createObjectNode().put("version", AppInfoParser.getVersion()));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            say(attempt(JSON.readTree(line)));
        }
    }

    private static void say(ObjectNode words) throws Exception {
        System.out.println(JSON.writeValueAsString(words));
    }

    private static ObjectNode attempt(JsonNode asked) throws Exception {
        boolean idempotent = asked.get("idempotent").booleanValue();
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", asked.get("bootstrap").textValue(),
            "acks", asked.get("acks").textValue(),
            "enable.idempotence", idempotent,
            "retries", idempotent ? asked.get("retries").intValue() : 0,
            "linger.ms", 0,
            "request.timeout.ms", asked.get("timeout_ms").intValue(),
            "delivery.timeout.ms", asked.get("timeout_ms").intValue());
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode outcomes = answer.putArray("outcomes");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode target : asked.get("targets")) {
                outcomes.add(outcome(producer, target.get(0).textValue(), target.get(1).intValue()));
            }
        }
        return answer;
    }

    private static String outcome(KafkaProducer<byte[], byte[]> producer, String topic, int partition)
            throws InterruptedException {
        try {
            var sent = producer.send(new ProducerRecord<>(topic, partition, null, "value".getBytes(UTF_8))).get();
            return sent.hasOffset() ? "offset " + sent.offset() : "sent";
        } catch (ExecutionException error) {
            return Errors.forException(error.getCause()).name();
        }
    }
}
