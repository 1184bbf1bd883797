import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The limit: an exactly-once copy with Kafka's own Java clients. No ring, no verdict, no state. What is polled is one transaction.
 * Sizes are Ringfence's. Arguments: bootstrap servers, group, input, output.
 */
public final class PlainCopy {
    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], group = arguments[1], input = arguments[2], output = arguments[3];
        Map<String, Object> reading = Clients.reading(bootstrap, group);
        Map<String, Object> writing = Clients.writing(bootstrap, group);
        AtomicBoolean stopped = Clients.stopped();
        try (var consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             var producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            while (!stopped.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) copy(records, consumer, producer, output);
            }
        }
    }

    private static void copy(ConsumerRecords<byte[], byte[]> records, KafkaConsumer<byte[], byte[]> consumer,
                             KafkaProducer<byte[], byte[]> producer, String output) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> those = records.records(partition);
            for (ConsumerRecord<byte[], byte[]> each : those)
                producer.send(new ProducerRecord<>(output, null, each.timestamp(), each.key(), each.value(), each.headers()));
            offsets.put(partition, new OffsetAndMetadata(those.get(those.size() - 1).offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }
}
