// Lists all topics by the Java client: java Listing.java BOOTSTRAP TIMES prints one JSON object

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartitionInfo;

public class Listing {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ObjectNode answer = json.createObjectNode();
        ArrayNode seconds = answer.putArray("seconds");
        Map<Integer, Integer> leaders = new HashMap<>();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0], "client.id", "java"))) {
            for (int time = 0; time < Integer.parseInt(arguments[1]); time++) {
                long began = System.nanoTime();
                leaders.clear();
                var names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
                Map<String, TopicDescription> topics = admin.describeTopics(names).allTopicNames().get();
                for (TopicDescription topic : topics.values()) {
                    for (TopicPartitionInfo partition : topic.partitions()) {
                        leaders.merge(partition.leader() == null ? -1 : partition.leader().id(), 1, Integer::sum);
                    }
                }
                seconds.add((System.nanoTime() - began) / 1e9);
                answer.put("topics", topics.size());
            }
        }
        ObjectNode told = answer.putObject("leaders");
        leaders.forEach((leader, count) -> told.put(leader.toString(), count));
        System.out.println(json.writeValueAsString(answer));
    }
}
