/* What an applied batch does to the index in memory: as ResidentIndex.add() in tables/ring.py, which is the reference. */
#include "core.h"

/* Forget the oldest: 1 = one was forgotten, 0 = there is none, -1 = an error. */
static int forget(PyObject *sequences, PyObject *order, PyObject *popleft, long long low) {
    Py_ssize_t left = PyObject_Size(order);
    if (left <= 0) return (int)left;
    PyObject *oldest = PyObject_CallMethodNoArgs(order, popleft);
    if (oldest == NULL) return -1;
    int outcome = 1;
    if (oldest != Py_None) {
        PyObject *known = PyDict_GetItemWithError(sequences, oldest);
        if (known == NULL) {
            if (PyErr_Occurred()) outcome = -1;
        } else {
            long long sequence = PyLong_AsLongLong(known);
            /* One that was evicted and accepted again is known under its newer sequence: keep that. */
            if (sequence == -1 && PyErr_Occurred()) outcome = -1;
            else if (sequence == low && PyDict_DelItem(sequences, oldest) < 0) outcome = -1;
        }
    }
    Py_DECREF(oldest);
    return outcome;
}

/* note(sequences, order, first sequence, ids, low, new low): as the loop in ResidentIndex.add(), but for the times. */
PyObject *note(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *sequences, *order, *ids;
    long long first, low, new_low;
    if (!PyArg_ParseTuple(args, "O!OLO!LL", &PyDict_Type, &sequences, &order, &first, &PyList_Type, &ids, &low, &new_low))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids); i++) {
        PyObject *sequence = PyLong_FromLongLong(first + i);
        if (sequence == NULL) return NULL;
        int failed = PyDict_SetItem(sequences, PyList_GET_ITEM(ids, i), sequence);
        Py_DECREF(sequence);
        if (failed) return NULL;
    }
    PyObject *extended = PyObject_CallMethod(order, "extend", "O", ids);
    if (extended == NULL) return NULL;
    Py_DECREF(extended);
    PyObject *popleft = PyUnicode_InternFromString("popleft");
    if (popleft == NULL) return NULL;
    int outcome = 1;
    for (; low < new_low && outcome > 0; low++) outcome = forget(sequences, order, popleft, low);
    Py_DECREF(popleft);
    if (outcome < 0) return NULL;
    Py_RETURN_NONE;
}
