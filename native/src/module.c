/* native._core: record batches parsed, judged and built without an object a record. The reference is the path in Python. */
#include "core.h"

/* Of this interface: native/__init__.py uses no other. To be raised with each change of a function's arguments or result. */
enum { INTERFACE = 6 };

/* The digest of these sources, by setup.py. Without it native/__init__.py does not load the core. */
#ifndef SOURCES
#define SOURCES ""
#endif

/* crc32c(bytes, by_table): by the table also where the processor has an instruction for it. */
static PyObject *checksum(PyObject *module, PyObject *args) {
    (void)module;
    Py_buffer view;
    int by_table;
    if (!PyArg_ParseTuple(args, "y*p", &view, &by_table)) return NULL;
    uint32_t crc = by_table ? crc32c_by_table(view.buf, (size_t)view.len) : crc32c(view.buf, (size_t)view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

static PyMethodDef functions[] = {
    {"parse", parse, METH_VARARGS, "Records of a fetch from an offset on, and where the next fetch begins; None = ask aiokafka."},
    {"cut", cut, METH_VARARGS, "Where the whole records among the first bytes end, and how many there are."},
    {"stretch", stretch, METH_VARARGS, "Records of a part of a batch, from an offset on; None = ask aiokafka."},
    {"plan", plan, METH_VARARGS, "Verdicts and record batches for records; None = ask the path in Python."},
    {"seal", seal, METH_VARARGS, "Write a record batch's header in front of it."},
    {"crc32c", checksum, METH_VARARGS, "CRC-32C of bytes."},
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
    if (!records_prepare() || !ids_prepare()) return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE) < 0) Py_CLEAR(module);
    if (module != NULL && PyModule_AddStringConstant(module, "SOURCES", SOURCES) < 0) Py_CLEAR(module);
    if (module != NULL && PyModule_AddObjectRef(module, "Records", (PyObject *)RecordsType) < 0) Py_CLEAR(module);
    if (module != NULL && PyModule_AddObjectRef(module, "Ids", (PyObject *)IdsType) < 0) Py_CLEAR(module);
    return module;
}
