/* Record batches of one fetch, parsed where they lie.
 *
 * What is read here is what aiokafka would read of the same bytes. Wherever there is a doubt - an older format, damage, a
 * number that is not written in the fewest bytes, a header name that is not ASCII - nothing is said, and aiokafka reads the
 * whole fetch. */
#include "core.h"

/* For less the interpreter lock is kept: getting it back may take longer than they do. */
enum { RELEASED_FROM_BYTES = 32 * 1024 };
/* Length, attributes, time, offset, key, value, headers. */
enum { RECORD_BYTES_MIN = 7 };

typedef struct {
    const uint8_t *begin, *at, *end;
} Reader;

/* The next number; *ok = 0 where there is none, or it has more bytes than it needs. */
static inline int64_t next_varint(Reader *reader, int *ok) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift <= 63; shift += 7) {
        if (reader->at >= reader->end) break;
        uint8_t byte = *reader->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if ((byte == 0 && shift) || (shift == 63 && byte > 1)) break;
            return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
        }
    }
    *ok = 0;
    return 0;
}

/* Steps over a length and as many bytes; -1 = null. */
static inline int32_t next_bytes(Reader *reader, uint32_t *begin, int *ok) {
    int64_t length = next_varint(reader, ok);
    *begin = (uint32_t)(reader->at - reader->begin);
    if (!*ok || length < -1 || length > reader->end - reader->at) {
        *ok = 0;
        return -1;
    }
    if (length > 0) reader->at += length;
    return (int32_t)length;
}

static int is_ascii(const uint8_t *bytes, int32_t length) {
    uint8_t all = 0;
    for (int32_t i = 0; i < length; i++) all |= bytes[i];
    return all < 0x80;
}

typedef struct {
    int64_t base_offset, first_time, max_time;
    int append_time;
    int32_t count, last;
    uint32_t buffer;
    size_t begin, end;
    int32_t crc_at; /* where the batch begins in the fetch; -1 = its checksum has been looked at */
} Stretch;

static int read_record(Reader *reader, const Stretch *stretch, Record *record) {
    int ok = 1;
    int64_t length = next_varint(reader, &ok);
    if (!ok || length < 0 || length > reader->end - reader->at) return 0;
    const uint8_t *end = reader->at + length;
    Reader body = {reader->begin, reader->at, end};
    if (length == 0 || *body.at++ != 0) return 0; /* attributes: none are in use */
    int64_t time = next_varint(&body, &ok);
    int64_t delta = next_varint(&body, &ok);
    if (delta < 0 || delta > stretch->last) return 0;
    record->key_length = next_bytes(&body, &record->key, &ok);
    if (ok) record->value_length = next_bytes(&body, &record->value, &ok);
    int64_t headers = ok ? next_varint(&body, &ok) : 0;
    if (!ok || headers < 0 || headers > length) return 0;
    record->offset = stretch->base_offset + delta; /* a base is INT64_MAX / 2 at most */
    if (__builtin_add_overflow(stretch->first_time, time, &record->timestamp)) return 0;
    if (stretch->append_time) record->timestamp = stretch->max_time;
    if (record->timestamp < 0) return 0; /* aiokafka's builder takes -1 for none yet */
    record->buffer = stretch->buffer;
    record->headers = (uint32_t)(body.at - body.begin);
    record->headers_count = (int32_t)headers;
    for (int64_t i = 0; i < headers; i++) {
        uint32_t at;
        int32_t name = next_bytes(&body, &at, &ok);
        if (!ok || name < 0 || !is_ascii(body.begin + at, name)) return 0;
        next_bytes(&body, &at, &ok);
        if (!ok) return 0;
    }
    record->end = (uint32_t)(body.at - body.begin);
    reader->at = end;
    return body.at == end;
}

typedef struct {
    Stretch *stretches;
    Record *records;
    int64_t *aborted;
    size_t count, room, aborted_count, aborted_room;
    Py_ssize_t records_count;
    Py_ssize_t large_at; /* where the batch begins in the fetch that is too large for one part; -1 = none does */
} Found;

/* How much one part may have: it ends with the batch that reaches one of the two. */
typedef struct {
    Py_ssize_t records, bytes;
} Bounds;

/* All records of the stretches from *next on; 0 = leave it to aiokafka, -1 = no memory. */
static int read_stretches(Found *found, const uint8_t *const *buffers, const uint8_t *data, int64_t *next) {
    Py_ssize_t total = 0;
    for (size_t i = 0; i < found->count; i++) total += found->stretches[i].count;
    found->records = malloc((size_t)(total ? total : 1) * sizeof(Record));
    if (found->records == NULL) return -1;
    for (size_t i = 0; i < found->count; i++) {
        const Stretch *stretch = &found->stretches[i];
        if (stretch->crc_at >= 0) {
            const uint8_t *batch = data + stretch->crc_at;
            size_t length = load_be32(batch + AT_LENGTH) + LOG_OVERHEAD - AT_ATTRIBUTES;
            if (crc32c(batch + AT_ATTRIBUTES, length) != load_be32(batch + AT_CRC)) return 0;
        }
        const uint8_t *begin = buffers[stretch->buffer];
        Reader reader = {begin, begin + stretch->begin, begin + stretch->end};
        for (int32_t number = 0; number < stretch->count; number++) {
            Record *record = &found->records[found->records_count];
            if (!read_record(&reader, stretch, record)) return 0;
            if (record->offset < *next) continue;
            *next = record->offset + 1;
            found->records_count++;
        }
        if (reader.at != reader.end) return 0;
    }
    if (found->records_count && found->records_count < total) {
        Record *fewer = realloc(found->records, (size_t)found->records_count * sizeof(Record));
        if (fewer != NULL) found->records = fewer;
    }
    return 1;
}

/* Whether a control batch holds the marker of an abort; -1 = it is not to be understood. One that the broker's cleaner has emptied
 * holds none (ringfence_kafka/aiokafka_patches/internals.py); where the cleaner has noted when it may go, the batch's first time is that, and the
 * record's own lies before it. */
static int is_abort(const uint8_t *batch, size_t length) {
    Stretch stretch = {.count = 1, .last = INT32_MAX, .first_time = load_be64(batch + AT_FIRST_TIME)};
    Record record;
    Reader reader = {batch, batch + HEADER_BYTES, batch + length};
    if (load_be32(batch + AT_COUNT) == 0) return 0;
    if (!read_record(&reader, &stretch, &record)) return -1;
    if (record.key_length < 4 || load_be16(batch + record.key) != 0) return -1;
    return load_be16(batch + record.key + 2) == 0;
}

/* aiokafka's list of aborted transactions, sorted by their first offset. */
static int pairs(PyObject *list, int64_t **to, Py_ssize_t *count) {
    *count = PyList_Size(list);
    *to = malloc((size_t)(*count ? *count : 1) * 2 * sizeof(int64_t));
    if (*to == NULL) return PyErr_NoMemory(), 0;
    for (Py_ssize_t i = 0; i < *count; i++) {
        long long producer, first;
        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "LL", &producer, &first)) return 0;
        (*to)[2 * i] = producer;
        (*to)[2 * i + 1] = first;
    }
    return 1;
}

static int is_aborted(const Found *found, int64_t producer) {
    for (size_t i = 0; i < found->aborted_count; i++)
        if (found->aborted[i] == producer) return 1;
    return 0;
}

static void end_abort(Found *found, int64_t producer) {
    for (size_t i = 0; i < found->aborted_count; i++)
        if (found->aborted[i] == producer) found->aborted[i--] = found->aborted[--found->aborted_count];
}

/* The buffer of a stretch: the fetch itself, or what its bytes are when they are decompressed. 2 = they are too many for one part. */
static int open_stretch(Stretch *stretch, const uint8_t *batch, size_t length, PyObject *buffers, PyObject *decompress) {
    int codec = load_be16(batch + AT_ATTRIBUTES) & CODEC_MASK;
    const uint8_t *records = batch + HEADER_BYTES;
    if (codec == 0) return 1;
    if (crc32c(batch + AT_ATTRIBUTES, length - AT_ATTRIBUTES) != load_be32(batch + AT_CRC)) return 0;
    PyObject *plain = PyObject_CallFunction(decompress, "iy#", codec, records, (Py_ssize_t)(length - HEADER_BYTES));
    if (plain == NULL) return -1;
    if (plain == Py_False) {
        Py_DECREF(plain);
        return 2;
    }
    if (plain == Py_None || !PyBytes_CheckExact(plain) || PyBytes_Size(plain) > INT32_MAX) {
        Py_DECREF(plain);
        return 0;
    }
    stretch->buffer = (uint32_t)PyList_Size(buffers);
    stretch->begin = 0;
    stretch->end = (size_t)PyBytes_Size(plain);
    stretch->crc_at = -1;
    int failed = PyList_Append(buffers, plain);
    Py_DECREF(plain);
    return failed ? -1 : 1;
}

/* Go over the batches by their headers: which are to be read, from `from` on and as far as one part goes, and where the next part
 * or fetch begins. What lies below was read before, and is gone over for what it says of transactions. */
static int survey(Found *found, const uint8_t *data, size_t size, PyObject *aborted, int committed, PyObject *buffers,
                  PyObject *decompress, int64_t from, const Bounds *bounds, int64_t *end, int *more) {
    int64_t *pending = NULL;
    int64_t next = *end;
    Py_ssize_t records = 0, bytes = 0;
    Py_ssize_t pending_count = 0, pending_next = 0;
    int outcome = -1;
    if (!pairs(aborted, &pending, &pending_count)) goto done;
    for (size_t at = 0; size - at >= LOG_OVERHEAD;) {
        const uint8_t *batch = data + at;
        int64_t told = (int32_t)load_be32(batch + AT_LENGTH);
        if (told > (int64_t)(size - at - LOG_OVERHEAD)) break; /* cut off by the broker */
        outcome = 0;
        if (told < HEADER_BYTES - LOG_OVERHEAD || batch[AT_MAGIC] != 2) goto done;
        size_t length = (size_t)told + LOG_OVERHEAD;
        int64_t base = load_be64(batch), producer = load_be64(batch + AT_PRODUCER_ID);
        int32_t last = (int32_t)load_be32(batch + AT_LAST_DELTA), count = (int32_t)load_be32(batch + AT_COUNT);
        uint16_t attributes = load_be16(batch + AT_ATTRIBUTES);
        if (base < 0 || base > INT64_MAX / 2 || last < 0 || count < 0) goto done;
        if (at ? base < next : base + last < next) goto done; /* no broker sends that: aiokafka decides */
        int skip = (attributes & CONTROL) != 0;
        if (skip && crc32c(batch + AT_ATTRIBUTES, length - AT_ATTRIBUTES) != load_be32(batch + AT_CRC)) goto done;
        if (committed) {
            for (; pending_next < pending_count && pending[2 * pending_next + 1] <= base; pending_next++) {
                outcome = -1;
                if (!grown((void **)&found->aborted, &found->aborted_room, found->aborted_count, sizeof(int64_t)))
                    goto memory;
                found->aborted[found->aborted_count++] = pending[2 * pending_next];
            }
            outcome = 0;
            if (attributes & CONTROL) {
                int abort = is_abort(batch, length);
                if (abort < 0) goto done;
                if (abort) end_abort(found, producer);
            }
            if (attributes & TRANSACTIONAL && is_aborted(found, producer)) skip = 1;
        }
        next = base + last + 1;
        if (next <= from) {
            at += length;
            continue;
        }
        if (!skip && found->count && (records >= bounds->records || bytes >= bounds->bytes)) {
            *more = 1;
            break;
        }
        if (!skip) {
            outcome = -1;
            if (!grown((void **)&found->stretches, &found->room, found->count, sizeof(Stretch))) goto memory;
            Stretch *stretch = &found->stretches[found->count];
            *stretch = (Stretch){.base_offset = base, .first_time = load_be64(batch + AT_FIRST_TIME),
                                 .max_time = load_be64(batch + AT_MAX_TIME),
                                 .append_time = (attributes & LOG_APPEND_TIME) != 0, .count = count, .last = last,
                                 .begin = at + HEADER_BYTES, .end = at + length, .crc_at = (int32_t)at};
            outcome = open_stretch(stretch, batch, length, buffers, decompress);
            if (outcome <= 0) goto done;
            if (outcome == 2) { /* a part of its own, or several */
                *more = 1;
                if (found->count == 0) found->large_at = (Py_ssize_t)at;
                break;
            }
            outcome = 0;
            if ((size_t)count > (stretch->end - stretch->begin) / RECORD_BYTES_MIN) goto done;
            found->count++;
            records += count;
            bytes += (Py_ssize_t)(stretch->end - stretch->begin);
        } else if (!(attributes & CONTROL)) { /* an aborted one is damaged as any other */
            if (crc32c(batch + AT_ATTRIBUTES, length - AT_ATTRIBUTES) != load_be32(batch + AT_CRC)) goto done;
        }
        *end = next;
        at += length;
    }
    outcome = 1;
    goto done;
memory:
    PyErr_NoMemory();
done:
    free(pending);
    return outcome;
}

/* Have a part that is not all of a fetch keep no more of its bytes than it needs: the others may be done long before. */
static int cut_out(Found *found, PyObject *buffers, const uint8_t *data, size_t size) {
    size_t begin = size, end = 0;
    for (size_t i = 0; i < found->count; i++) {
        const Stretch *stretch = &found->stretches[i];
        if (stretch->buffer != 0) continue;
        if (stretch->begin < begin) begin = stretch->begin;
        if (stretch->end > end) end = stretch->end;
    }
    if (end > begin && end - begin + HEADER_BYTES >= size) return 1;
    if (end <= begin) begin = end = 0;
    PyObject *part = PyBytes_FromStringAndSize((const char *)data + begin, (Py_ssize_t)(end - begin));
    if (part == NULL || PyList_SetItem(buffers, 0, part) < 0) return 0;
    for (size_t i = 0; i < found->count; i++)
        if (found->stretches[i].buffer == 0) found->stretches[i].begin -= begin, found->stretches[i].end -= begin;
    return 1;
}

/* Read what was surveyed; as read_stretches(). */
static int read_found(Found *found, PyObject *buffers, const uint8_t *data, int64_t *next) {
    Py_ssize_t count = PyList_Size(buffers);
    const uint8_t **places = malloc((size_t)count * sizeof(*places));
    if (places == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < count; i++)
        places[i] = (const uint8_t *)PyBytes_AsString(PyList_GetItem(buffers, i));
    size_t bytes = 0;
    for (size_t i = 0; i < found->count; i++) bytes += found->stretches[i].end - found->stretches[i].begin;
    PyThreadState *released = bytes >= RELEASED_FROM_BYTES ? PyEval_SaveThread() : NULL;
    int outcome = read_stretches(found, places, data, next);
    if (released != NULL) PyEval_RestoreThread(released);
    free(places);
    if (outcome < 0) PyErr_NoMemory();
    return outcome;
}

/* What read_found() has read, as Records. */
static Records *records_of(Found *found, PyObject *buffers) {
    PyObject *kept = PyList_AsTuple(buffers);
    Records *records = kept == NULL ? NULL : records_new(kept, found->records, found->records_count);
    Py_XDECREF(kept);
    if (records != NULL) found->records = NULL;
    return records;
}

/* cut(bytes, records, limit) -> (end, count): how many whole records, at most so many, stand within so many of the first bytes. */
PyObject *cut(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *data;
    Py_ssize_t most, limit, count = 0;
    if (!PyArg_ParseTuple(args, "Snn", &data, &most, &limit)) return NULL;
    const uint8_t *begin = (const uint8_t *)PyBytes_AsString(data), *end = begin;
    if (limit > PyBytes_Size(data)) limit = PyBytes_Size(data);
    Reader reader = {begin, begin, begin + (limit < 0 ? 0 : limit)};
    for (; count < most; count++) {
        int ok = 1;
        int64_t length = next_varint(&reader, &ok);
        if (!ok || length < 0 || length > reader.end - reader.at) break;
        end = reader.at += length;
    }
    return Py_BuildValue("nn", (Py_ssize_t)(end - begin), count);
}

/* stretch(header, bytes, count, from) -> Records | None: the records of one batch that these bytes hold, and nothing else. The bytes are
 * decompressed, and the checksum of the batch was looked at. */
PyObject *stretch(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *header, *data, *result = NULL, *buffers = NULL;
    long long from;
    int count;
    if (!PyArg_ParseTuple(args, "SSiL", &header, &data, &count, &from)) return NULL;
    Py_ssize_t size = PyBytes_Size(data);
    const uint8_t *batch = (const uint8_t *)PyBytes_AsString(header);
    if (PyBytes_Size(header) != HEADER_BYTES || size > INT32_MAX || count < 0 || count > size / RECORD_BYTES_MIN)
        Py_RETURN_NONE;
    int64_t base = load_be64(batch), next = from;
    int32_t last = (int32_t)load_be32(batch + AT_LAST_DELTA);
    if (base < 0 || base > INT64_MAX / 2 || last < 0) Py_RETURN_NONE;
    Stretch only = {.base_offset = base, .first_time = load_be64(batch + AT_FIRST_TIME),
                    .max_time = load_be64(batch + AT_MAX_TIME),
                    .append_time = (load_be16(batch + AT_ATTRIBUTES) & LOG_APPEND_TIME) != 0, .count = count, .last = last,
                    .end = (size_t)size, .crc_at = -1};
    Found found = {.stretches = &only, .count = 1};
    if ((buffers = Py_BuildValue("[O]", data)) == NULL) return NULL;
    int outcome = read_found(&found, buffers, batch, &next);
    if (outcome == 0) result = Py_NewRef(Py_None);
    else if (outcome > 0) result = (PyObject *)records_of(&found, buffers);
    free(found.records);
    Py_DECREF(buffers);
    return result;
}

/* parse(data, begin, from, aborted, committed, decompress, records, bytes) -> (Records, end, more, large) | None */
PyObject *parse(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *data, *aborted, *decompress, *result = NULL, *buffers = NULL;
    long long begin, from;
    int committed, more = 0;
    Bounds bounds;
    if (!PyArg_ParseTuple(args, "SLLO!pOnn", &data, &begin, &from, &PyList_Type, &aborted, &committed, &decompress,
                          &bounds.records, &bounds.bytes))
        return NULL;
    if (PyBytes_Size(data) > INT32_MAX) Py_RETURN_NONE;
    Found found = {.large_at = -1};
    const uint8_t *bytes = (const uint8_t *)PyBytes_AsString(data);
    size_t size = (size_t)PyBytes_Size(data);
    int64_t next = from, end = begin;
    if ((buffers = Py_BuildValue("[O]", data)) == NULL) return NULL;
    int outcome = survey(&found, bytes, size, aborted, committed, buffers, decompress, from, &bounds, &end, &more);
    if (outcome > 0 && end < from) end = from;
    if (outcome > 0 && !cut_out(&found, buffers, bytes, size)) outcome = -1;
    if (outcome > 0) outcome = read_found(&found, buffers, bytes, &next);
    if (outcome > 0 && end < next) outcome = 0;
    if (outcome == 0) {
        result = Py_NewRef(Py_None);
    } else if (outcome > 0) {
        Records *records = records_of(&found, buffers);
        if (records != NULL)
            result = Py_BuildValue("NLOn", records, (long long)end, more ? Py_True : Py_False, found.large_at);
    }
    free(found.stretches);
    free(found.records);
    free(found.aborted);
    Py_DECREF(buffers);
    return result;
}
