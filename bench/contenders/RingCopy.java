import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
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
 * What one writes by hand: Kafka's own Java clients, a ring in memory a partition, a compacted changelog of it; outputs, changelog and
 * offsets in one transaction a poll. One process: it does not move between machines as Streams would. Sizes are Ringfence's.
 * Arguments: bootstrap servers, group, input, output, changelog, size of a ring.
 */
public final class RingCopy {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final KafkaProducer<byte[], byte[]> producer;
    private final Map<String, Object> reading;
    private final String output, changelog;
    private final int size;
    private final Map<Integer, Ring> rings = new HashMap<>();

    private RingCopy(String[] arguments) {
        String bootstrap = arguments[0], group = arguments[1];
        output = arguments[3];
        changelog = arguments[4];
        size = Integer.parseInt(arguments[5]);
        reading = Clients.reading(bootstrap, group);
        Map<String, Object> writing = Clients.writing(bootstrap, group);
        consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        producer = new KafkaProducer<>(writing, new ByteArraySerializer(), new ByteArraySerializer());
    }

    public static void main(String[] arguments) throws Exception {
        AtomicBoolean stopped = Clients.stopped();
        RingCopy copy = new RingCopy(arguments);
        try (copy.consumer; copy.producer) {
            copy.producer.initTransactions();
            copy.consumer.subscribe(List.of(arguments[2]), copy.new Restoring());
            while (!stopped.get()) {
                ConsumerRecords<byte[], byte[]> records = copy.consumer.poll(Duration.ofMillis(200));
                if (!records.isEmpty()) copy.copy(records);
            }
        }
    }

    private void copy(ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        producer.beginTransaction();
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<byte[], byte[]>> those = records.records(partition);
            Ring ring = rings.get(partition.partition());
            for (ConsumerRecord<byte[], byte[]> each : those) {
                String id = Ring.idOf(each.headers());
                if (ring.knows(id)) continue;
                byte[] slot = ByteBuffer.allocate(4).putInt(ring.slot()).array();
                producer.send(new ProducerRecord<>(changelog, partition.partition(), slot, ring.entry(id)));
                producer.send(new ProducerRecord<>(output, null, each.timestamp(), each.key(), each.value(), each.headers()));
                ring.add(id);
            }
            offsets.put(partition, new OffsetAndMetadata(those.get(those.size() - 1).offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.commitTransaction();
    }

    /** Reads the changelog of what is assigned. */
    private final class Restoring implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) rings.put(each.partition(), restored(each.partition()));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) rings.remove(each.partition());
        }

        private Ring restored(int number) {
            Ring ring = new Ring(size);
            TopicPartition partition = new TopicPartition(changelog, number);
            try (var reader = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                reader.assign(List.of(partition));
                reader.seekToBeginning(List.of(partition));
                long end = reader.endOffsets(List.of(partition)).get(partition);
                while (reader.position(partition) < end)
                    for (ConsumerRecord<byte[], byte[]> each : reader.poll(Duration.ofMillis(200))) ring.restore(each.value());
            }
            return ring;
        }
    }
}
