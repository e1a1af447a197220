// The program of the Java client: java Client.java (its manners: ../programs.py)

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Client {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        say(JSON.createObjectNode().put("version", AppInfoParser.getVersion()));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode asked = JSON.readTree(line);
            try {
                say(asked.get("verb").textValue().equals("produce") ? produce(asked) : fetch(asked));
            } catch (ExecutionException error) {
                say(JSON.createObjectNode().put("refused", error.getMessage()));
            } catch (Exception error) {
                say(JSON.createObjectNode().put("failed", error.toString()));
            }
        }
    }

    private static void say(ObjectNode words) throws Exception {
        System.out.println(JSON.writeValueAsString(words));
    }

    private static ObjectNode produce(JsonNode asked) throws Exception {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", asked.get("bootstrap").textValue(),
            "client.id", "java",
            "compression.type", asked.get("codec").textValue(),
            // Nothing is sent before flush, so that all records make one batch.
            "linger.ms", 30_000,
            "batch.size", 1 << 20));
        if (asked.hasNonNull("acks")) {
            settings.put("acks", asked.get("acks").textValue());
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (JsonNode record : asked.get("records")) {
                sent.add(producer.send(toSend(asked.get("topic").textValue(), record)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                future.get();
            }
        }
        return JSON.createObjectNode().put("sent", sent.size());
    }

    private static ProducerRecord<byte[], byte[]> toSend(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get("headers")) {
            headers.add(new RecordHeader(header.get(0).textValue(), toBytes(header.get(1))));
        }
        long timestamp = record.get("timestamp").longValue();
        return new ProducerRecord<>(
            topic, 0, timestamp, toBytes(record.get("key")), toBytes(record.get("value")), headers);
    }

    // From the beginning, which is all that anybody asks of this program.
    private static ObjectNode fetch(JsonNode asked) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        List<TopicPartition> partitions = List.of(new TopicPartition(asked.get("topic").textValue(), 0));
        Map<String, Object> settings =
            Map.of("bootstrap.servers", asked.get("bootstrap").textValue(), "client.id", "java");
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            // Whoever started this program ends it if the records never come.
            while (records.size() < asked.get("count").intValue()) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> records.add(received(record)));
            }
        }
        return answer;
    }

    private static ObjectNode received(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode told = JSON.createObjectNode()
            .put("offset", record.offset())
            .put("timestamp", record.timestamp())
            .put("key", toCharacters(record.key()))
            .put("value", toCharacters(record.value()));
        ArrayNode headers = told.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(toCharacters(header.value()));
        }
        return told;
    }

    private static byte[] toBytes(JsonNode characters) {
        return characters.isNull() ? null : characters.textValue().getBytes(ISO_8859_1);
    }

    private static String toCharacters(byte[] bytes) {
        return bytes == null ? null : new String(bytes, ISO_8859_1);
    }
}
