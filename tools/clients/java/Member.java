// The program of the Java client for members of groups: java Member.java (its manners: ../members.py)

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.AppInfoParser;

public class Member implements Runnable, ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class,
        "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class,
        "cooperative-sticky", CooperativeStickyAssignor.class,
        "by-weight", ByWeight.class);

    private final JsonNode asked;
    private final String topic;
    private final Set<Integer> owned = new TreeSet<>();
    private final Map<Integer, Long> uncommitted = new TreeMap<>();
    private volatile boolean mayCommit = true;
    private volatile boolean isLeaving = false;
    private KafkaConsumer<byte[], byte[]> consumer;

    Member(JsonNode asked) {
        this.asked = asked;
        this.topic = asked.get("topic").textValue();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        Map<String, Member> members = new HashMap<>();
        say(JSON.createObjectNode().put("version", AppInfoParser.getVersion()));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode asked = JSON.readTree(line);
            String name = asked.get("member").textValue();
            switch (asked.get("verb").textValue()) {
                case "join" -> {
                    members.put(name, new Member(asked));
                    Thread thread = new Thread(members.get(name));
                    thread.setDaemon(true);
                    thread.start();
                }
                case "hold" -> members.get(name).mayCommit = false;
                case "release" -> members.get(name).mayCommit = true;
                default -> members.get(name).isLeaving = true;
            }
        }
        System.exit(0);
    }

    private static synchronized void say(ObjectNode words) {
        System.out.println(words.toString());
    }

    private ObjectNode words() {
        return JSON.createObjectNode().put("member", asked.get("member").textValue());
    }

    @Override
    public void run() {
        try (var opened = new KafkaConsumer<>(settings(), new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer = opened;
            consumer.subscribe(List.of(topic), this);
            while (!isLeaving) {
                process(consumer.poll(POLL));
                settle();
            }
        } catch (Exception error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            say(words().put("failed", trace.toString()));
            return;
        }
        say(words().put("left", true));
    }

    private Map<String, Object> settings() {
        int session = asked.get("session_ms").intValue();
        String assignor = asked.get("assignor").textValue();
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", asked.get("bootstrap").textValue(),
            "client.id", asked.get("member").textValue(),
            "group.id", asked.get("group").textValue(),
            "session.timeout.ms", session,
            "heartbeat.interval.ms", Math.min(session / 4, 300),
            "max.poll.interval.ms", 30_000,
            "metadata.max.age.ms", 1000,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", false,
            "fetch.max.wait.ms", 100));
        settings.put("partition.assignment.strategy", List.of(ASSIGNORS.get(assignor)));
        settings.put("reconnect.backoff.max.ms", 500);
        settings.put("max.poll.records", 200);
        settings.put(ByWeight.WEIGHT, asked.get("weight").intValue());
        if (asked.hasNonNull("instance")) {
            settings.put("group.instance.id", asked.get("instance").textValue());
        }
        return settings;
    }

    private void process(Iterable<ConsumerRecord<byte[], byte[]>> records) {
        ObjectNode words = words();
        ArrayNode processed = words.putArray("processed");
        for (ConsumerRecord<byte[], byte[]> record : records) {
            processed.addArray().add(record.partition()).add(record.offset()).add(new String(record.value(), UTF_8));
            uncommitted.put(record.partition(), record.offset() + 1);
        }
        if (!processed.isEmpty()) {
            say(words);
        }
    }

    // Commits what was processed, if that is possible now.
    private void settle() {
        if (uncommitted.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        uncommitted.forEach((partition, offset) ->
            offsets.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
        ObjectNode words = words();
        try {
            if (!mayCommit) {
                say(words().put("held", true));
            }
            while (!mayCommit && !isLeaving) {
                Thread.sleep(10);
            }
            consumer.commitSync(offsets);
            ObjectNode committed = words.putObject("committed");
            uncommitted.forEach((partition, offset) -> committed.put(partition.toString(), offset));
        } catch (RebalanceInProgressException | InterruptedException notNow) {
            return;
        } catch (CommitFailedException error) {
            words.put("refused", error.toString());
        } catch (RetriableException notNow) {
            return;
        }
        uncommitted.clear();
        say(words);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        partitions.forEach(partition -> owned.add(partition.partition()));
        sayOwned();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        settle();
        onPartitionsLost(partitions);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        for (TopicPartition partition : partitions) {
            owned.remove(partition.partition());
            uncommitted.remove(partition.partition());
        }
        sayOwned();
    }

    private void sayOwned() {
        ObjectNode words = words();
        owned.forEach(words.putArray("owns")::add);
        say(words);
    }

    // Each partition to the one who then carries least for his weight.
    public static class ByWeight implements ConsumerPartitionAssignor, Configurable {
        static final String WEIGHT = "penstock.weight";

        private String weight;

        @Override
        public void configure(Map<String, ?> settings) {
            weight = settings.get(WEIGHT).toString();
        }

        @Override
        public String name() {
            return "by-weight";
        }

        @Override
        public ByteBuffer subscriptionUserData(Set<String> topics) {
            return ByteBuffer.wrap(weight.getBytes(UTF_8));
        }

        @Override
        public GroupAssignment assign(Cluster cluster, GroupSubscription group) {
            Map<String, Integer> weights = new TreeMap<>();
            Map<String, List<TopicPartition>> shares = new TreeMap<>();
            Set<String> topics = new TreeSet<>();
            group.groupSubscription().forEach((member, subscription) -> {
                weights.put(member, Integer.valueOf(UTF_8.decode(subscription.userData().duplicate()).toString()));
                shares.put(member, new ArrayList<>());
                topics.addAll(subscription.topics());
            });
            for (String topic : topics) {
                for (int partition = 0; partition < cluster.partitionCountForTopic(topic); partition++) {
                    String chosen = null;
                    double least = Double.MAX_VALUE;
                    for (String member : shares.keySet()) {
                        double load = (shares.get(member).size() + 1.0) / weights.get(member);
                        if (load < least) {
                            least = load;
                            chosen = member;
                        }
                    }
                    shares.get(chosen).add(new TopicPartition(topic, partition));
                }
            }
            Map<String, Assignment> assignments = new HashMap<>();
            shares.forEach((member, share) -> assignments.put(member, new Assignment(share)));
            return new GroupAssignment(assignments);
        }
    }
}
