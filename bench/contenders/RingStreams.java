import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The same in Kafka Streams, exactly_once_v2: a processor over a store in RocksDB, with its changelog, of slots; which IDs are known is
 * in memory, from the store, as Ringfence has it. Streams' own defaults but for the size of batches and the number of threads.
 * Arguments: bootstrap servers, application, input, output, folder, size of a ring, threads.
 */
public final class RingStreams {
    private static final String STORE = "ring";

    public static void main(String[] arguments) {
        int size = Integer.parseInt(arguments[5]);
        Properties properties = new Properties();
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Integer.parseInt(arguments[6]));
        properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 512 * 1024);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        var bytes = Serdes.ByteArray();
        Topology topology = new Topology();
        topology.addSource("input", bytes.deserializer(), bytes.deserializer(), arguments[2]);
        topology.addProcessor("deduplicate", () -> new Deduplicate(size), "input");
        topology.addStateStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(STORE), Serdes.Integer(), bytes), "deduplicate");
        topology.addSink("output", arguments[3], bytes.serializer(), bytes.serializer(), "deduplicate");
        KafkaStreams streams = new KafkaStreams(topology, properties);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static final class Deduplicate implements Processor<byte[], byte[], byte[], byte[]> {
        private final int size;
        private Ring ring;
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<Integer, byte[]> store;

        private Deduplicate(int size) {
            this.size = size;
        }

        @Override
        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            ring = new Ring(size); // also after a transaction that was aborted
            store = context.getStateStore(STORE);
            try (KeyValueIterator<Integer, byte[]> all = store.all()) {
                while (all.hasNext()) {
                    KeyValue<Integer, byte[]> each = all.next();
                    ring.restore(each.value);
                }
            }
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            String id = Ring.idOf(record.headers());
            if (ring.knows(id)) return;
            store.put(ring.slot(), ring.entry(id));
            ring.add(id);
            context.forward(record);
        }
    }
}
