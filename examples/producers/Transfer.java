// Sends one transaction with kafka-clients and Jackson.
import com.fasterxml.jackson.databind.*;
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.*;

public class Transfer {
    public static void main(String[] arguments) throws Exception {
        var parts = List.of(
            Map.of("key", "acct-1", "value", "{\"debit\":\"10 \u20ac\"}"),
            Map.of("address", "payments", "headers", List.of(Map.of("name", "type", "value", "credit")),
                "key", "acct-2", "value_base64", new byte[] {0, 1, -1}));  // Jackson writes bytes as base64
        var mapper = new ObjectMapper().configure(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS, true);
        var value = mapper.writeValueAsBytes(Map.of("parts", parts));
        var record = new ProducerRecord<>("transfers", "acct-1", value);
        record.headers().add("_RF_TX", "json/1".getBytes()).add("_AMQ_DUPL_ID", "pay-4711".getBytes());
        var config = Map.<String, Object>of("bootstrap.servers", "127.0.0.1:9092", "acks", "all");
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer())) {
            producer.send(record).get();  // an exception: send it again, as it was
        }
    }
}
