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
    int32_t count;
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
    record->key_length = next_bytes(&body, &record->key, &ok);
    if (ok) record->value_length = next_bytes(&body, &record->value, &ok);
    int64_t headers = ok ? next_varint(&body, &ok) : 0;
    if (!ok || headers < 0 || headers > length) return 0;
    if (__builtin_add_overflow(stretch->base_offset, delta, &record->offset)) return 0;
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
    Py_ssize_t records_count, records_room;
} Found;

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
    return 1;
}

/* Whether a control batch holds the marker of an abort; -1 = it is not to be understood. */
static int is_abort(const uint8_t *batch, size_t length) {
    Stretch stretch = {.count = 1};
    Record record;
    Reader reader = {batch, batch + HEADER_BYTES, batch + length};
    if (load_be32(batch + AT_COUNT) < 1 || !read_record(&reader, &stretch, &record)) return -1;
    if (record.key_length < 4 || load_be16(batch + record.key) != 0) return -1;
    return load_be16(batch + record.key + 2) == 0;
}

/* aiokafka's list of aborted transactions, sorted by their first offset. */
static int pairs(PyObject *list, int64_t **to, Py_ssize_t *count) {
    *count = PyList_GET_SIZE(list);
    *to = malloc((size_t)(*count ? *count : 1) * 2 * sizeof(int64_t));
    if (*to == NULL) return PyErr_NoMemory(), 0;
    for (Py_ssize_t i = 0; i < *count; i++) {
        long long producer, first;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, i), "LL", &producer, &first)) return 0;
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

/* The buffer of a stretch: the fetch itself, or what its bytes are when they are decompressed. */
static int open_stretch(Stretch *stretch, const uint8_t *batch, size_t length, PyObject *buffers, PyObject *decompress) {
    int codec = load_be16(batch + AT_ATTRIBUTES) & CODEC_MASK;
    const uint8_t *records = batch + HEADER_BYTES;
    if (codec == 0) return 1;
    if (crc32c(batch + AT_ATTRIBUTES, length - AT_ATTRIBUTES) != load_be32(batch + AT_CRC)) return 0;
    PyObject *plain = PyObject_CallFunction(decompress, "iy#", codec, records, (Py_ssize_t)(length - HEADER_BYTES));
    if (plain == NULL) return -1;
    if (plain == Py_None || !PyBytes_CheckExact(plain) || PyBytes_GET_SIZE(plain) > INT32_MAX) {
        Py_DECREF(plain);
        return 0;
    }
    stretch->buffer = (uint32_t)PyList_GET_SIZE(buffers);
    stretch->begin = 0;
    stretch->end = (size_t)PyBytes_GET_SIZE(plain);
    stretch->crc_at = -1;
    int failed = PyList_Append(buffers, plain);
    Py_DECREF(plain);
    return failed ? -1 : 1;
}

/* Go over the batches by their headers: which are to be read, and where the next fetch begins behind each. */
static int survey(Found *found, const uint8_t *data, size_t size, PyObject *aborted, int committed, PyObject *buffers,
                  PyObject *decompress, int64_t *end) {
    int64_t *pending = NULL;
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
        if (at ? base < *end : base + last < *end) goto done; /* no broker sends that: aiokafka decides */
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
        *end = base + last + 1;
        if (!skip) {
            outcome = -1;
            if (!grown((void **)&found->stretches, &found->room, found->count, sizeof(Stretch))) goto memory;
            Stretch *stretch = &found->stretches[found->count];
            *stretch = (Stretch){.base_offset = base, .first_time = load_be64(batch + AT_FIRST_TIME),
                                 .max_time = load_be64(batch + AT_MAX_TIME),
                                 .append_time = (attributes & LOG_APPEND_TIME) != 0, .count = count,
                                 .begin = at + HEADER_BYTES, .end = at + length, .crc_at = (int32_t)at};
            outcome = open_stretch(stretch, batch, length, buffers, decompress);
            if (outcome <= 0) goto done;
            outcome = 0;
            if ((size_t)count > (stretch->end - stretch->begin) / RECORD_BYTES_MIN) goto done;
            found->count++;
        } else if (!(attributes & CONTROL)) { /* an aborted one is damaged as any other */
            if (crc32c(batch + AT_ATTRIBUTES, length - AT_ATTRIBUTES) != load_be32(batch + AT_CRC)) goto done;
        }
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

/* parse(data, begin, aborted, committed, decompress) -> (Records, end) | None */
PyObject *parse(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *data, *aborted, *decompress, *result = NULL, *buffers = NULL;
    long long begin;
    int committed;
    if (!PyArg_ParseTuple(args, "SLO!pO", &data, &begin, &PyList_Type, &aborted, &committed, &decompress)) return NULL;
    if (PyBytes_GET_SIZE(data) > INT32_MAX) Py_RETURN_NONE;
    Found found = {0};
    const uint8_t *bytes = (const uint8_t *)PyBytes_AS_STRING(data);
    const uint8_t **places = NULL;
    int64_t next = begin, end = begin;
    if ((buffers = Py_BuildValue("[O]", data)) == NULL) goto done;
    int outcome = survey(&found, bytes, (size_t)PyBytes_GET_SIZE(data), aborted, committed, buffers, decompress, &end);
    if (outcome > 0) {
        Py_ssize_t count = PyList_GET_SIZE(buffers);
        places = malloc((size_t)count * sizeof(*places));
        if (places == NULL) {
            PyErr_NoMemory();
            goto done;
        }
        for (Py_ssize_t i = 0; i < count; i++)
            places[i] = (const uint8_t *)PyBytes_AS_STRING(PyList_GET_ITEM(buffers, i));
        PyThreadState *released = PyBytes_GET_SIZE(data) >= RELEASED_FROM_BYTES ? PyEval_SaveThread() : NULL;
        outcome = read_stretches(&found, places, bytes, &next);
        if (released != NULL) PyEval_RestoreThread(released);
        if (outcome < 0) PyErr_NoMemory();
        if (outcome > 0 && end < next) outcome = 0;
    }
    if (outcome == 0) {
        result = Py_NewRef(Py_None);
    } else if (outcome > 0) {
        PyObject *kept = PyList_AsTuple(buffers);
        Records *records = kept == NULL ? NULL : records_new(kept, found.records, found.records_count);
        Py_XDECREF(kept);
        if (records != NULL) {
            found.records = NULL;
            result = Py_BuildValue("NL", records, (long long)end);
        }
    }
done:
    free(places);
    free(found.stretches);
    free(found.records);
    free(found.aborted);
    Py_XDECREF(buffers);
    return result;
}
