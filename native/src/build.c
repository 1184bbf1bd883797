/* The record batches of a plan: of the accepted topic, of the changelog, and what RocksDB is given. */
#include "plan.h"

int work_begin(Work *work) {
    size_t count = (size_t)work->count, size = 16;
    while (size < 2 * count) size *= 2;
    Py_ssize_t buffers = PyTuple_Size(work->records->buffers);
    work->mask = size - 1;
    work->oldest = INT64_MAX;
    work->scans = malloc((count + 1) * sizeof(Scan));
    work->fresh = calloc(size, sizeof(int32_t));
    work->owners = malloc((count + 1) * sizeof(int32_t));
    work->known = malloc((count + 1) * sizeof(*work->known));
    work->digests = malloc((count + 1) * sizeof(uint64_t));
    work->ids = malloc((count + 1) * sizeof(Name));
    work->open = calloc((size_t)work->rules.targets, sizeof(int32_t));
    work->places = malloc((size_t)(buffers + 1) * sizeof(*work->places));
    work->new_ids = PyList_New(0);
    if (!work->scans || !work->fresh || !work->owners || !work->known || !work->digests || !work->ids || !work->open || !work->places ||
        !work->new_ids) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < buffers; i++)
        work->places[i] = (const uint8_t *)PyBytes_AsString(PyTuple_GetItem(work->records->buffers, i));
    return 1;
}

void work_end(Work *work) {
    for (size_t i = 0; i < work->batches_count; i++) free(work->batches[i].buffer.bytes);
    for (size_t i = 0; i < work->slots_count; i++) free(work->slots[i].buffer.bytes);
    free(work->chunk.bytes), free(work->composed.bytes);
    free(work->batches), free(work->slots), free(work->full), free(work->open);
    free(work->spans), free(work->scans), free(work->fresh), free(work->owners), free(work->ids), free(work->places);
    free(work->known), free(work->digests);
    Py_XDECREF(work->new_ids), Py_XDECREF(work->found);
}

/* A new batch of the list; NULL = no memory. */
static Batch *begin(Work *work, Batch **list, size_t *count, size_t *room, int32_t partition, int64_t time) {
    if (!grown((void **)list, room, *count, sizeof(Batch))) {
        work->failed = 1;
        return NULL;
    }
    Batch *batch = &(*list)[(*count)++];
    batch_begin(batch, partition);
    batch->first_time = batch->max_time = time;
    return batch;
}

/* Whether a record with so many bytes behind its offset fits; its first always does. aiokafka's builder fills none to the last byte. */
static int fits(const Work *work, const Batch *batch, int64_t time, size_t rest) {
    size_t body = 1 + varint_size(time - batch->first_time) + varint_size(batch->count) + rest;
    size_t whole = varint_size((int64_t)body) + body;
    return batch->count == 0 || batch->buffer.length + whole < (size_t)work->rules.batch_bytes;
}

/* What stands in front of the key. */
static void put_front(Batch *batch, int64_t time, size_t rest) {
    static const uint8_t attributes = 0;
    int64_t delta = time - batch->first_time;
    put_varint(&batch->buffer, (int64_t)(1 + varint_size(delta) + varint_size(batch->count) + rest));
    put_bytes(&batch->buffer, &attributes, 1);
    put_varint(&batch->buffer, delta);
    put_varint(&batch->buffer, batch->count);
    if (time > batch->max_time) batch->max_time = time;
    batch->count++;
}

static size_t part_size(Part part) {
    return varint_size(part.length) + (size_t)(part.length > 0 ? part.length : 0);
}

static void put_part(Buffer *buffer, Part part) {
    put_varint(buffer, part.length);
    if (part.length > 0) put_bytes(buffer, part.bytes, (size_t)part.length);
}

static size_t digits(char *to, int64_t number) {
    char reverse[20];
    size_t count = 0;
    do reverse[count++] = (char)('0' + number % 10);
    while (number /= 10);
    for (size_t i = 0; i < count; i++) to[i] = reverse[count - 1 - i];
    return count;
}

/* Goes over a record's own headers that stay; into `to`, or, without it, only counts their bytes. */
static size_t keep_headers(const Rules *rules, const uint8_t *bytes, const Record *record, const Scan *scan, Buffer *to) {
    const uint8_t *at = bytes + record->headers;
    if (scan->ours == 0) {
        if (to != NULL) put_bytes(to, at, record->end - record->headers);
        return record->end - record->headers;
    }
    size_t kept = 0;
    for (int32_t i = 0; i < record->headers_count; i++) {
        const uint8_t *begin = at;
        Part parts[2];
        for (int each = 0; each < 2; each++) {
            uint64_t value = 0;
            unsigned shift = 0;
            do value |= (uint64_t)(*at & 0x7f) << shift, shift += 7;
            while (*at++ & 0x80);
            parts[each] = (Part){at, (int32_t)((int64_t)(value >> 1) ^ -(int64_t)(value & 1))};
            if (parts[each].length > 0) at += parts[each].length;
        }
        int left_out = 0;
        for (int each = 0; each < rules->ours_count; each++)
            left_out |= rules->ours[each].length == parts[0].length &&
                        memcmp(rules->ours[each].bytes, parts[0].bytes, (size_t)parts[0].length) == 0;
        if (left_out) continue;
        if (to != NULL) put_bytes(to, begin, (size_t)(at - begin));
        kept += (size_t)(at - begin);
    }
    return kept;
}

static int same(Part one, Part other) {
    return one.length == other.length && (one.length <= 0 || memcmp(one.bytes, other.bytes, (size_t)one.length) == 0);
}

/* The batch of its partition that takes a record; NULL = none does, or no memory. */
static Batch *batch_for(Work *work, int32_t partition, int64_t time, size_t rest) {
    int32_t *open = &work->open[partition];
    if (*open) {
        Batch *batch = &work->batches[*open - 1];
        if (fits(work, batch, time, rest)) return batch;
        if (!grown((void **)&work->full, &work->full_room, work->full_count, sizeof(size_t))) {
            work->failed = 1;
            return NULL;
        }
        work->full[work->full_count++] = (size_t)*open - 1;
    }
    Batch *batch = begin(work, &work->batches, &work->batches_count, &work->batches_room, partition, time);
    if (batch == NULL) return NULL;
    *open = (int32_t)work->batches_count;
    return batch;
}

static const Name *place_of_record(const Work *work, int32_t record) {
    const Span *span = work->spans;
    while (record >= span->end) span++;
    return &span->place;
}

/* The value of the header that says its verdict: a word, and of a duplicate the place of its original. */
typedef struct {
    Name word, place;
    char offset[20];
    size_t offset_length, length;
} Mark;

static Mark mark_of(const Work *work, const Scan *scan) {
    static const char *const words[] = {"ACCEPTED", "DUPLICATE", "UNCHECKED", "DUPLICATE"};
    const char *word = words[scan->verdict];
    Mark mark = {.word = {(const uint8_t *)word, (Py_ssize_t)strlen(word)}, .place = scan->original};
    if (scan->twin >= 0) {
        mark.place = *place_of_record(work, scan->twin);
        mark.offset_length = digits(mark.offset, work->records->records[scan->twin].offset);
    }
    mark.length = (size_t)mark.word.length;
    if (mark.place.bytes != NULL) mark.length += 1 + (size_t)mark.place.length + mark.offset_length;
    return mark;
}

static void put_mark(Buffer *to, Part name, const Mark *mark) {
    put_part(to, name);
    put_varint(to, (int64_t)mark->length);
    put_bytes(to, mark->word.bytes, (size_t)mark->word.length);
    if (mark->place.bytes == NULL) return;
    put_bytes(to, " ", 1);
    put_bytes(to, mark->place.bytes, (size_t)mark->place.length);
    put_bytes(to, mark->offset, mark->offset_length);
}

/* `sequence`: of its ID, if it is accepted with a new one. */
static int build_record(Work *work, const Record *record, const Scan *scan, const Name *place, int64_t sequence) {
    const Rules *rules = &work->rules;
    const uint8_t *bytes = work->places[record->buffer];
    Part key = {bytes + record->key, record->key_length}, value = {bytes + record->value, record->value_length};
    char offset[20];
    size_t offset_length = digits(offset, record->offset);
    Part name = {rules->source_header.bytes, (int32_t)rules->source_header.length};
    Part key_name = {rules->key_header.bytes, (int32_t)rules->key_header.length};
    int with_key = !same(key, scan->group);
    int with_sequence = rules->sequence_header.bytes != NULL && scan->verdict == ACCEPTED;
    char number[20];
    Part sequence_name = {rules->sequence_header.bytes, (int32_t)rules->sequence_header.length};
    Part sequence_value = {(const uint8_t *)number, with_sequence ? (int32_t)digits(number, sequence) : 0};
    int with_verdict = rules->verdict_header.bytes != NULL;
    Part verdict_name = {rules->verdict_header.bytes, (int32_t)rules->verdict_header.length};
    Mark mark = with_verdict ? mark_of(work, scan) : (Mark){.length = 0};
    int64_t source_length = place->length + (int64_t)offset_length;
    int32_t count = record->headers_count - scan->ours + 1 + with_key + with_sequence + with_verdict;
    size_t rest = part_size(scan->group) + part_size(value) + varint_size(count) +
                  keep_headers(rules, bytes, record, scan, NULL) + part_size(name) + varint_size(source_length) +
                  (size_t)source_length + (with_key ? part_size(key_name) + part_size(key) : 0) +
                  (with_sequence ? part_size(sequence_name) + part_size(sequence_value) : 0) +
                  (with_verdict ? part_size(verdict_name) + varint_size((int64_t)mark.length) + mark.length : 0);
    int32_t partition = scan->group.length < 0 ? work->spread : (int32_t)(scan->hash % (uint32_t)rules->targets);
    Batch *batch = batch_for(work, partition, record->timestamp, rest);
    if (batch == NULL) return 0;
    put_front(batch, record->timestamp, rest);
    Buffer *to = &batch->buffer;
    put_part(to, scan->group);
    put_part(to, value);
    put_varint(to, count);
    keep_headers(rules, bytes, record, scan, to);
    put_part(to, name);
    put_varint(to, source_length);
    put_bytes(to, place->bytes, (size_t)place->length);
    put_bytes(to, offset, offset_length);
    if (with_key) put_part(to, key_name), put_part(to, key);
    if (with_sequence) put_part(to, sequence_name), put_part(to, sequence_value);
    if (with_verdict) put_mark(to, verdict_name, &mark);
    if (to->failed) work->failed = 1;
    /* One that is too large even alone goes to quarantine, which is not decided here. */
    return !to->failed && (batch->count > 1 || to->length <= (size_t)rules->bytes_max);
}

int build_accepted(Work *work) {
    const Span *span = work->spans;
    int64_t sequence = work->first;
    for (Py_ssize_t i = 0; i < work->count; i++) {
        const Scan *scan = &work->scans[i];
        while (i >= span->end) span++;
        int passes = scan->verdict == ACCEPTED || scan->verdict == UNCHECKED || work->rules.verdict_header.bytes != NULL;
        if (passes && !build_record(work, &work->records->records[i], scan, &span->place, sequence))
            return 0;
        sequence += scan->verdict == ACCEPTED;
    }
    return 1;
}

/* Ring records of the new IDs, see tables/codec.py; and as one chunk: each value behind its length. */
int build_slots(Work *work) {
    Batch *batch = NULL;
    const Span *span = work->spans;
    for (int32_t i = 0; i < work->ids_count; i++) {
        while (work->owners[i] >= span->end) span++;
        const Record *record = &work->records->records[work->owners[i]];
        const uint8_t *id = work->ids[i].bytes;
        size_t id_length = (size_t)work->ids[i].length;
        int64_t sequence = work->first + i;
        uint8_t key[RING_KEY_BYTES] = {KIND_RING}, value[2 + RING_VALUE_BYTES];
        store_be32(key + 1, (uint32_t)work->capacity);
        store_be32(key + 5, (uint32_t)(sequence % work->capacity));
        store_be16(value, (uint16_t)(RING_VALUE_BYTES + id_length));
        value[2] = FORMAT_VERSION;
        store_be64(value + 3, (uint64_t)sequence);
        store_be32(value + 11, (uint32_t)span->partition);
        store_be64(value + 15, (uint64_t)record->offset);
        store_be64(value + 23, (uint64_t)record->timestamp);
        store_be64(value + 31, work->digests[i]);
        int64_t length = RING_VALUE_BYTES + (int64_t)id_length;
        size_t rest = varint_size(RING_KEY_BYTES) + RING_KEY_BYTES + varint_size(length) + (size_t)length + 1;
        if (batch == NULL || !fits(work, batch, work->now, rest)) {
            batch = begin(work, &work->slots, &work->slots_count, &work->slots_room, 0, work->now);
            if (batch == NULL) return 0;
        }
        put_front(batch, work->now, rest);
        put_varint(&batch->buffer, RING_KEY_BYTES);
        put_bytes(&batch->buffer, key, RING_KEY_BYTES);
        put_varint(&batch->buffer, length);
        put_bytes(&batch->buffer, value + 2, RING_VALUE_BYTES);
        put_bytes(&batch->buffer, id, id_length);
        put_varint(&batch->buffer, 0);
        put_bytes(&work->chunk, value, sizeof value);
        put_bytes(&work->chunk, id, id_length);
        if (batch->buffer.failed || work->chunk.failed) {
            work->failed = 1;
            return 0;
        }
    }
    return 1;
}

/* Those that are full in that order, then those that are open in the order in which they were begun. */
static Batch *in_order(Work *work) {
    Batch *ordered = malloc((work->batches_count + 1) * sizeof(Batch));
    if (ordered == NULL) return NULL;
    size_t to = 0;
    for (size_t i = 0; i < work->full_count; i++) ordered[to++] = work->batches[work->full[i]];
    for (size_t i = 0; i < work->batches_count; i++)
        if (work->open[work->batches[i].partition] == (int32_t)i + 1) ordered[to++] = work->batches[i];
    return ordered;
}

/* Timestamps of the new IDs; none without a minimum age: nobody asks for them. */
static PyObject *new_times(const Work *work) {
    PyObject *times = PyList_New(0);
    for (int32_t i = 0; i < work->ids_count && work->min_age >= 0 && times != NULL; i++) {
        PyObject *time = PyLong_FromLongLong(work->records->records[work->owners[i]].timestamp);
        if (time == NULL || PyList_Append(times, time) < 0) Py_CLEAR(times);
        Py_XDECREF(time);
    }
    return times;
}

PyObject *work_result(Work *work) {
    Batch *ordered = in_order(work);
    if (ordered == NULL) return PyErr_NoMemory();
    PyObject *accepted = batch_list(ordered, work->batches_count);
    free(ordered);
    PyObject *slots = batch_list(work->slots, work->slots_count);
    PyObject *chunk = PyBytes_FromStringAndSize((const char *)work->chunk.bytes, (Py_ssize_t)work->chunk.length);
    PyObject *digests = PyBytes_FromStringAndSize((const char *)work->digests, (Py_ssize_t)(work->ids_count * sizeof(uint64_t)));
    PyObject *verdicts = PyBytes_FromStringAndSize(NULL, work->count), *times = new_times(work);
    PyObject *result = NULL;
    if (accepted != NULL && slots != NULL && chunk != NULL && digests != NULL && verdicts != NULL && times != NULL) {
        char *to = PyBytes_AsString(verdicts);
        for (Py_ssize_t i = 0; i < work->count; i++) to[i] = (char)work->scans[i].verdict;
        result = Py_BuildValue("OOOOOOLO", verdicts, work->new_ids, digests, accepted, slots, chunk, (long long)work->oldest, times);
    }
    Py_XDECREF(accepted), Py_XDECREF(slots), Py_XDECREF(chunk), Py_XDECREF(digests), Py_XDECREF(verdicts), Py_XDECREF(times);
    return result;
}
