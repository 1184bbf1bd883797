import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;

/** The last IDs of one partition, in memory. What a changelog has of it is a slot's number, and its sequence with the ID. */
final class Ring {
    private static final String ID = "_AMQ_DUPL_ID";
    private final String[] slots;
    private final Set<String> known = new HashSet<>();
    private long head;

    Ring(int size) {
        slots = new String[size];
    }

    static String idOf(Headers headers) {
        Header header = headers.lastHeader(ID);
        return new String(header.value(), StandardCharsets.ISO_8859_1);
    }

    boolean knows(String id) {
        return known.contains(id);
    }

    /** Remember an ID that is not known; the oldest is forgotten. */
    void add(String id) {
        place(head, id);
    }

    /** The slot that the next ID takes. */
    int slot() {
        return (int) (head % slots.length);
    }

    /** What is written of an ID that is to be added next. */
    byte[] entry(String id) {
        byte[] bytes = id.getBytes(StandardCharsets.ISO_8859_1);
        return ByteBuffer.allocate(8 + bytes.length).putLong(head).put(bytes).array();
    }

    /** Take over what was written; in any order, where each slot comes last as it was written last. */
    void restore(byte[] entry) {
        ByteBuffer buffer = ByteBuffer.wrap(entry);
        long sequence = buffer.getLong();
        place(sequence, new String(entry, 8, entry.length - 8, StandardCharsets.ISO_8859_1));
    }

    private void place(long sequence, String id) {
        int slot = (int) (sequence % slots.length);
        if (slots[slot] != null) known.remove(slots[slot]);
        slots[slot] = id;
        known.add(id);
        head = Math.max(head, sequence + 1);
    }
}
