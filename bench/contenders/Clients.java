import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;

/** What contenders with Kafka's plain Java clients have alike, so that a ring is all that they differ in. */
final class Clients {
    private Clients() {}

    static Map<String, Object> reading(String bootstrap, String group) {
        return Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "isolation.level", "read_committed", "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "max.partition.fetch.bytes", 2 << 20, "fetch.max.wait.ms", 100, "max.poll.records", 20_000);
    }

    static Map<String, Object> writing(String bootstrap, String transactionalId) {
        return Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", transactionalId, "batch.size", 512 * 1024, "linger.ms", 5,
            "buffer.memory", 64L << 20, "max.request.size", 64 << 20, "acks", "all");
    }

    /** True once the process is to end, which then waits for the calling thread. */
    static AtomicBoolean stopped() {
        AtomicBoolean stopped = new AtomicBoolean();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopped.set(true);
            try {
                main.join(10_000);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        return stopped;
    }
}
