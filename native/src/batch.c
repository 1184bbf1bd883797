/* Record batches that are written. */
#include "core.h"

/* Room for one more item; 0 = no memory. */
int grown(void **items, size_t *room, size_t count, size_t size) {
    if (count < *room) return 1;
    size_t more = *room ? *room * 2 : 16;
    void *moved = realloc(*items, more * size);
    if (moved == NULL) return 0;
    *items = moved;
    *room = more;
    return 1;
}

int buffer_reserve(Buffer *buffer, size_t more) {
    if (buffer->failed) return 0;
    if (buffer->length + more <= buffer->room) return 1;
    size_t room = buffer->room ? buffer->room : 4096;
    while (room < buffer->length + more) room *= 2;
    uint8_t *bytes = realloc(buffer->bytes, room);
    if (bytes == NULL) {
        buffer->failed = 1;
        return 0;
    }
    buffer->bytes = bytes;
    buffer->room = room;
    return 1;
}

void batch_begin(Batch *batch, int32_t partition) {
    *batch = (Batch){.partition = partition};
    if (buffer_reserve(&batch->buffer, HEADER_BYTES)) {
        memset(batch->buffer.bytes, 0, HEADER_BYTES);
        batch->buffer.length = HEADER_BYTES;
    }
}

/* [(partition, bytes with room for the header, records, first timestamp, largest)] */
PyObject *batch_list(Batch *batches, size_t count) {
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list != NULL && i < count; i++) {
        const Batch *batch = &batches[i];
        PyObject *bytes =
            PyByteArray_FromStringAndSize((const char *)batch->buffer.bytes, (Py_ssize_t)batch->buffer.length);
        PyObject *item = bytes == NULL ? NULL
                                       : Py_BuildValue("iNiLL", (int)batch->partition, bytes, (int)batch->count,
                                                       (long long)batch->first_time, (long long)batch->max_time);
        if (item == NULL) Py_CLEAR(list);
        else PyList_SetItem(list, (Py_ssize_t)i, item);
    }
    return list;
}

/* seal(batch, count, first timestamp, largest, attributes, producer, epoch, sequence): write the header in front. */
PyObject *seal(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *batch;
    int count, attributes, epoch, sequence;
    long long first, largest, producer;
    if (!PyArg_ParseTuple(args, "YiLLiLii", &batch, &count, &first, &largest, &attributes, &producer, &epoch, &sequence))
        return NULL;
    size_t length = (size_t)PyByteArray_Size(batch);
    if (length < HEADER_BYTES) return PyErr_Format(PyExc_ValueError, "a record batch has %d bytes at least", HEADER_BYTES);
    uint8_t *to = (uint8_t *)PyByteArray_AsString(batch);
    store_be64(to, 0);
    store_be32(to + AT_LENGTH, (uint32_t)(length - LOG_OVERHEAD));
    store_be32(to + 12, 0xffffffffu);
    to[AT_MAGIC] = 2;
    store_be16(to + AT_ATTRIBUTES, (uint16_t)attributes);
    store_be32(to + AT_LAST_DELTA, (uint32_t)(count - 1));
    store_be64(to + AT_FIRST_TIME, (uint64_t)first);
    store_be64(to + AT_MAX_TIME, (uint64_t)largest);
    store_be64(to + AT_PRODUCER_ID, (uint64_t)producer);
    store_be16(to + 51, (uint16_t)epoch);
    store_be32(to + 53, (uint32_t)sequence);
    store_be32(to + AT_COUNT, (uint32_t)count);
    store_be32(to + AT_CRC, crc32c(to + AT_ATTRIBUTES, length - AT_ATTRIBUTES));
    Py_RETURN_NONE;
}
