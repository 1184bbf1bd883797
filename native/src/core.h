/* What the parts of the core share: the layout of a parsed record, growing buffers, checksums and hashes. */
#ifndef RINGFENCE_CORE_H
#define RINGFENCE_CORE_H

/* The limited API of CPython 3.11 only (setup.py), so that one build serves all later versions. It has functions in place of macros: loops
 * over records avoid them. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Of a record batch of format 2, from its first byte. */
enum {
    AT_LENGTH = 8,
    AT_MAGIC = 16,
    AT_CRC = 17,
    AT_ATTRIBUTES = 21,
    AT_LAST_DELTA = 23,
    AT_FIRST_TIME = 27,
    AT_MAX_TIME = 35,
    AT_PRODUCER_ID = 43,
    AT_COUNT = 57,
    HEADER_BYTES = 61,
    LOG_OVERHEAD = 12
};
enum { CODEC_MASK = 7, LOG_APPEND_TIME = 8, TRANSACTIONAL = 16, CONTROL = 32 };

/* Where the parts of a record stand in one of the buffers of its Records. */
typedef struct {
    int64_t offset;
    int64_t timestamp;
    uint32_t buffer;
    uint32_t key;
    int32_t key_length; /* -1 = null */
    uint32_t value;
    int32_t value_length; /* -1 = null */
    uint32_t headers; /* behind their count */
    uint32_t end;
    int32_t headers_count;
} Record;

typedef struct {
    PyObject_HEAD
    PyObject *buffers; /* tuple of bytes */
    Record *records;
    Py_ssize_t count;
} Records;

extern PyTypeObject *RecordsType;
int records_prepare(void);
Records *records_new(PyObject *buffers, Record *records, Py_ssize_t count);
PyObject *parse(PyObject *module, PyObject *args);
PyObject *cut(PyObject *module, PyObject *args);
PyObject *stretch(PyObject *module, PyObject *args);

/* Bytes that grow. After a failed growth `failed` is set, and whatever is written is dropped. */
typedef struct {
    uint8_t *bytes;
    size_t length;
    size_t room;
    int failed;
} Buffer;

int buffer_reserve(Buffer *buffer, size_t more);
int grown(void **items, size_t *room, size_t count, size_t size);

static inline void put_bytes(Buffer *buffer, const void *bytes, size_t length) {
    if (length && buffer_reserve(buffer, length)) {
        memcpy(buffer->bytes + buffer->length, bytes, length);
        buffer->length += length;
    }
}

static inline uint64_t zigzag(int64_t value) { return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63); }

static inline size_t varint_size(int64_t value) {
    uint64_t rest = zigzag(value);
    size_t size = 1;
    while (rest >>= 7) size++;
    return size;
}

static inline void put_varint(Buffer *buffer, int64_t value) {
    uint64_t rest = zigzag(value);
    if (!buffer_reserve(buffer, 10)) return;
    uint8_t *to = buffer->bytes + buffer->length;
    while (rest > 0x7f) {
        *to++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *to++ = (uint8_t)rest;
    buffer->length = (size_t)(to - buffer->bytes);
}

static inline void store_be16(uint8_t *to, uint16_t value) {
    to[0] = (uint8_t)(value >> 8), to[1] = (uint8_t)value;
}
static inline void store_be32(uint8_t *to, uint32_t value) {
    store_be16(to, (uint16_t)(value >> 16)), store_be16(to + 2, (uint16_t)value);
}
static inline void store_be64(uint8_t *to, uint64_t value) {
    store_be32(to, (uint32_t)(value >> 32)), store_be32(to + 4, (uint32_t)value);
}
static inline uint16_t load_be16(const uint8_t *from) { return (uint16_t)(from[0] << 8 | from[1]); }
static inline uint32_t load_be32(const uint8_t *from) {
    return (uint32_t)load_be16(from) << 16 | load_be16(from + 2);
}
static inline int64_t load_be64(const uint8_t *from) {
    return (int64_t)((uint64_t)load_be32(from) << 32 | load_be32(from + 4));
}

uint32_t crc32c(const uint8_t *bytes, size_t length);
uint32_t crc32c_by_table(const uint8_t *bytes, size_t length);
uint32_t crc32_zlib(const uint8_t *bytes, size_t length);
uint32_t murmur2(const uint8_t *bytes, size_t length);
void checksums_prepare(void);
uint64_t value_digest(const uint8_t *bytes, size_t length);

/* A record batch that is being filled, one open for each partition of a topic. */
typedef struct {
    Buffer buffer; /* with room for the header in front */
    int64_t first_time;
    int64_t max_time;
    int32_t count;
    int32_t partition;
} Batch;

void batch_begin(Batch *batch, int32_t partition);
PyObject *batch_list(Batch *batches, size_t count);

PyObject *plan(PyObject *module, PyObject *args);
PyObject *seal(PyObject *module, PyObject *args);

extern PyTypeObject *IdsType;
int ids_prepare(void);
/* The sequence by which an ID is known, -1 = it is not. The digest is that of the value that it came with, 0 = nobody knows; the time is
 * its timestamp, where timestamps are kept. */
long long ids_find(PyObject *ids, const uint8_t *bytes, size_t length, uint64_t *digest, int64_t *time);
int ids_there(PyObject *ids);

#endif
