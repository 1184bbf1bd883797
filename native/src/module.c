/* native._core: record batches parsed, judged and built without an object a record. The reference is the path in Python. */
#include "core.h"

static PyObject *checksum(PyObject *module, PyObject *bytes) {
    (void)module;
    Py_buffer view;
    if (PyObject_GetBuffer(bytes, &view, PyBUF_SIMPLE) < 0) return NULL;
    uint32_t crc = crc32c(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef functions[] = {
    {"parse", parse, METH_VARARGS, "Records of a fetch from an offset on, and where the next fetch begins; None = ask aiokafka."},
    {"plan", plan, METH_VARARGS, "Verdicts and record batches for records; None = ask the path in Python."},
    {"seal", seal, METH_VARARGS, "Write a record batch's header in front of it."},
    {"note", note, METH_VARARGS, "Make new IDs part of an index in memory, and forget the oldest."},
    {"crc32c", checksum, METH_O, "CRC-32C of bytes."},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "native._core",
    .m_doc = "Record batches parsed, judged and built without an object a record.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__core(void) {
    checksums_prepare();
    if (PyType_Ready(&RecordsType) < 0) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddObjectRef(module, "Records", (PyObject *)&RecordsType) < 0) Py_CLEAR(module);
    return module;
}
