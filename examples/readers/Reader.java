import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** Read accepted messages: {@code java -cp 'kafka/libs/*' Reader.java}. */
public class Reader {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", System.getenv().getOrDefault("KAFKA", "127.0.0.1:9092"));
        properties.put("group.id", "java-reader");
        properties.put("isolation.level", "read_committed");
        properties.put("auto.offset.reset", "earliest");
        properties.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        properties.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(List.of(System.getenv().getOrDefault("TOPIC", "orders.accepted")));
            while (true) {
                consumer.poll(Duration.ofSeconds(1)).forEach(record -> System.out.println(
                    new String(record.headers().lastHeader("_RF_SOURCE").value()) + " " + record.value()));
            }
        }
    }
}
