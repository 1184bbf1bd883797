/* Records: what was parsed, as a sequence whose slices share the bytes. */
#include "core.h"

/* Takes over `records`, unless it fails. */
Records *records_new(PyObject *buffers, Record *records, Py_ssize_t count) {
    Records *self = PyObject_New(Records, RecordsType);
    if (self == NULL) return NULL;
    self->buffers = Py_NewRef(buffers);
    self->records = records;
    self->count = count;
    return self;
}

static void records_free(Records *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_DECREF(self->buffers);
    free(self->records);
    PyObject_Free(self);
    Py_DECREF(type);
}

static Py_ssize_t records_length(Records *self) { return self->count; }

static PyObject *bytes_or_none(const char *from, uint32_t at, int32_t length) {
    return length < 0 ? Py_NewRef(Py_None) : PyBytes_FromStringAndSize(from + at, length);
}

static int32_t take_length(const uint8_t **at) {
    uint64_t value = 0;
    unsigned shift = 0;
    uint8_t byte;
    do {
        byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    return (int32_t)((int64_t)(value >> 1) ^ -(int64_t)(value & 1));
}

static PyObject *headers_of(const char *bytes, const Record *record) {
    const uint8_t *at = (const uint8_t *)bytes + record->headers;
    PyObject *headers = PyTuple_New(record->headers_count);
    for (int32_t i = 0; headers != NULL && i < record->headers_count; i++) {
        int32_t length = take_length(&at);
        PyObject *name = PyUnicode_DecodeASCII((const char *)at, length, NULL);
        at += length;
        length = take_length(&at);
        PyObject *value = bytes_or_none((const char *)at, 0, length);
        if (length > 0) at += length;
        PyObject *header = name && value ? PyTuple_Pack(2, name, value) : NULL;
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (header == NULL) Py_CLEAR(headers);
        else PyTuple_SetItem(headers, i, header);
    }
    return headers;
}

/* (offset, timestamp, key, value, headers) */
static PyObject *records_item(Records *self, Py_ssize_t number) {
    if (number < 0 || number >= self->count) {
        PyErr_SetString(PyExc_IndexError, "no such record");
        return NULL;
    }
    const Record *record = &self->records[number];
    const char *bytes = PyBytes_AsString(PyTuple_GetItem(self->buffers, record->buffer));
    PyObject *key = bytes_or_none(bytes, record->key, record->key_length);
    PyObject *value = bytes_or_none(bytes, record->value, record->value_length);
    PyObject *headers = headers_of(bytes, record);
    if (key == NULL || value == NULL || headers == NULL) {
        Py_XDECREF(key), Py_XDECREF(value), Py_XDECREF(headers);
        return NULL;
    }
    return Py_BuildValue("LLNNN", (long long)record->offset, (long long)record->timestamp, key, value, headers);
}

static PyObject *part(Records *self, Py_ssize_t begin, Py_ssize_t end) {
    Py_ssize_t count = end > begin ? end - begin : 0;
    Record *records = malloc((size_t)(count ? count : 1) * sizeof(Record));
    if (records == NULL) return PyErr_NoMemory();
    memcpy(records, self->records + begin, (size_t)count * sizeof(Record));
    PyObject *buffers = count ? Py_NewRef(self->buffers) : PyTuple_New(0); /* nothing keeps no bytes */
    Records *result = buffers == NULL ? NULL : records_new(buffers, records, count);
    Py_XDECREF(buffers);
    if (result == NULL) free(records);
    return (PyObject *)result;
}

static PyObject *records_slice(Records *self, PyObject *args) {
    Py_ssize_t begin, end;
    if (!PyArg_ParseTuple(args, "nn", &begin, &end)) return NULL;
    if (begin < 0) begin = 0;
    if (end > self->count) end = self->count;
    if (end < 0) end = 0;
    return part(self, begin > end ? end : begin, end);
}

/* Offsets rise: the first record that is not below it. */
static PyObject *records_since(Records *self, PyObject *offset) {
    long long from = PyLong_AsLongLong(offset);
    if (from == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t low = 0, high = self->count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (self->records[middle].offset < from) low = middle + 1;
        else high = middle;
    }
    return part(self, low, self->count);
}

static PyObject *records_joined(Records *self, PyObject *later) {
    if (!PyObject_TypeCheck(later, RecordsType)) return PyErr_Format(PyExc_TypeError, "these are no Records");
    Records *other = (Records *)later;
    Py_ssize_t count = self->count + other->count;
    uint32_t shift = (uint32_t)PyTuple_Size(self->buffers);
    Record *records = malloc((size_t)(count ? count : 1) * sizeof(Record));
    if (records == NULL) return PyErr_NoMemory();
    memcpy(records, self->records, (size_t)self->count * sizeof(Record));
    memcpy(records + self->count, other->records, (size_t)other->count * sizeof(Record));
    for (Py_ssize_t i = self->count; i < count; i++) records[i].buffer += shift;
    PyObject *buffers = PySequence_Concat(self->buffers, other->buffers);
    Records *result = buffers == NULL ? NULL : records_new(buffers, records, count);
    Py_XDECREF(buffers);
    if (result == NULL) free(records);
    return (PyObject *)result;
}

static PyObject *records_offset(Records *self, PyObject *number) {
    Py_ssize_t at = PyLong_AsSsize_t(number);
    if (at == -1 && PyErr_Occurred()) return NULL;
    if (at < 0 || at >= self->count) return PyErr_Format(PyExc_IndexError, "no such record");
    return PyLong_FromLongLong(self->records[at].offset);
}

/* fitting(fixed, copies, bytes, most) -> (count, bytes of their parts, headers): how many of the first cost no more than so many bytes
 * together, where one costs `fixed` and so many copies of its parts. One of them in any case. */
static PyObject *records_fitting(Records *self, PyObject *args) {
    long long fixed, copies, left, content = 0, headers = 0;
    Py_ssize_t most, count = 0;
    if (!PyArg_ParseTuple(args, "LLLn", &fixed, &copies, &left, &most)) return NULL;
    for (; count < self->count && count < most; count++) {
        const Record *record = &self->records[count];
        long long parts = (long long)(record->end - record->headers);
        if (record->key_length > 0) parts += record->key_length;
        if (record->value_length > 0) parts += record->value_length;
        left -= fixed + copies * parts;
        if (left < 0 && count) break;
        content += parts;
        headers += record->headers_count;
    }
    return Py_BuildValue("nLL", count, content, headers);
}

/* What stays in memory as long as one of them is there: their bytes, and where in those they are. */
static PyObject *records_size(Records *self, PyObject *nothing) {
    (void)nothing;
    Py_ssize_t size = self->count * (Py_ssize_t)sizeof(Record);
    for (Py_ssize_t i = 0; i < PyTuple_Size(self->buffers); i++)
        size += PyBytes_Size(PyTuple_GetItem(self->buffers, i));
    return PyLong_FromSsize_t(size);
}

static PyMethodDef methods[] = {
    {"slice", (PyCFunction)records_slice, METH_VARARGS, "Those from one place to before another."},
    {"since", (PyCFunction)records_since, METH_O, "Those whose offset is not below this one."},
    {"joined", (PyCFunction)records_joined, METH_O, "These, and others behind them."},
    {"offset", (PyCFunction)records_offset, METH_O, "The offset of one."},
    {"fitting", (PyCFunction)records_fitting, METH_VARARGS, "How many of the first ones fit into so many bytes."},
    {"size", (PyCFunction)records_size, METH_NOARGS, "Bytes of memory that these hold."},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "Records of one or more fetches, as they lie in their bytes."},
    {Py_tp_dealloc, records_free},
    {Py_sq_length, records_length},
    {Py_sq_item, records_item},
    {Py_tp_methods, methods},
    {0},
};
static PyType_Spec spec = {
    .name = "native._core.Records",
    .basicsize = sizeof(Records),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
PyTypeObject *RecordsType;

/* Make the type; 0 = it failed. */
int records_prepare(void) {
    if (RecordsType == NULL) RecordsType = (PyTypeObject *)PyType_FromSpec(&spec);
    return RecordsType != NULL;
}
