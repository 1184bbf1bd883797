/* What becomes of records, and the record batches of it: agents/decision/decide.py, agents/output/build.py and tables/ring.py in one, for what is plain.
 *
 * Those are the reference. Whatever is not plain - an envelope, a hop, a record that is at home elsewhere or too large - is theirs:
 * then nothing is said here, and nothing is changed in any case. */
#include "plan.h"

/* -- rules ---------------------------------------------------------------------------------------------------- */

static int names_of(PyObject *tuple, Name *names, int *count, int most) {
    *count = (int)PyTuple_Size(tuple);
    if (*count > most) return PyErr_Format(PyExc_ValueError, "more than %d names", most), 0;
    for (int i = 0; i < *count; i++) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(tuple, i), &bytes, &length) < 0) return 0;
        names[i] = (Name){(const uint8_t *)bytes, length};
    }
    return 1;
}

static int rules_of(PyObject *tuple, Rules *rules) {
    PyObject *ids, *ours, *special;
    if (!PyArg_ParseTuple(tuple, "iO!y#z#y#pz#y#O!O!y#y#z#z#iiipipnnO", &rules->id_from, &PyTuple_Type, &ids,
                          &rules->kinds.bytes, &rules->kinds.length, &rules->type_header.bytes,
                          &rules->type_header.length, &rules->type_prefix.bytes, &rules->type_prefix.length,
                          &rules->needed, &rules->group_header.bytes, &rules->group_header.length, &rules->default_group.bytes,
                          &rules->default_group.length, &PyTuple_Type, &ours, &PyTuple_Type, &special,
                          &rules->source_header.bytes, &rules->source_header.length, &rules->key_header.bytes,
                          &rules->key_header.length, &rules->sequence_header.bytes, &rules->sequence_header.length,
                          &rules->verdict_header.bytes, &rules->verdict_header.length,
                          &rules->lane, &rules->lanes, &rules->homes, &rules->crc32, &rules->targets,
                          &rules->conflicts_apart,
                          &rules->batch_bytes, &rules->bytes_max, &rules->encode))
        return 0;
    if (!names_of(ids, rules->ids, &rules->ids_count, NAMES_MAX)) return 0;
    if (rules->id_from == FROM_PARTS && rules->kinds.length != rules->ids_count)
        return PyErr_Format(PyExc_ValueError, "an ID of %d parts has that many kinds", rules->ids_count), 0;
    rules->late = memchr(rules->kinds.bytes, FROM_VALUE, (size_t)rules->kinds.length) != NULL;
    return names_of(ours, rules->ours, &rules->ours_count, NAMES_MAX) &&
           names_of(special, rules->special, &rules->special_count, NAMES_MAX);
}

/* [(number of records, place of _RF_SOURCE up to the offset, partition)] */
static int spans_of(PyObject *list, Work *work) {
    Py_ssize_t count = PyList_Size(list), end = 0;
    work->spans = malloc((size_t)(count + 1) * sizeof(Span));
    if (work->spans == NULL) return PyErr_NoMemory(), 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        Span *span = &work->spans[i];
        Py_ssize_t records;
        PyObject *item = PyList_GetItem(list, i);
        if (!PyTuple_Check(item)) return PyErr_Format(PyExc_TypeError, "a span is a tuple"), 0;
        if (!PyArg_ParseTuple(item, "ny#i", &records, &span->place.bytes, &span->place.length, &span->partition))
            return 0;
        if (records < 0) return PyErr_Format(PyExc_ValueError, "a span of less than no records"), 0;
        span->end = end += records;
    }
    work->spans_count = count;
    if (end != work->count) return PyErr_Format(PyExc_ValueError, "spans of %zd records, there are %zd", end, work->count), 0;
    return 1;
}

static inline int is_name(const Name *name, const uint8_t *bytes, int32_t length) {
    return length == name->length && memcmp(bytes, name->bytes, (size_t)length) == 0;
}

static int is_one_of(const Name *names, int count, const uint8_t *bytes, int32_t length) {
    for (int i = 0; i < count; i++)
        if (is_name(&names[i], bytes, length)) return 1;
    return 0;
}

/* -- reading: ID, group, home --------------------------------------------------------------------------------- */

/* A number that was looked at before. */
static inline int32_t read_length(const uint8_t **at) {
    uint64_t value = **at & 0x7f;
    for (unsigned shift = 7; *(*at)++ & 0x80; shift += 7) value |= (uint64_t)(**at & 0x7f) << shift;
    return (int32_t)((int64_t)(value >> 1) ^ -(int64_t)(value & 1));
}

static inline uint32_t hash_of(const Rules *rules, Part key) {
    return rules->crc32 ? crc32_zlib(key.bytes, (size_t)key.length)
                        : murmur2(key.bytes, (size_t)key.length) & 0x7fffffffu;
}

/* The home lane of a hash. */
static inline int home_of(const Rules *rules, uint32_t hash) {
    return (int)(hash % (uint32_t)rules->homes) % rules->lanes;
}

/* Of repeated headers the last counts. 0 = not plain. */
static int scan_headers(const Rules *rules, const uint8_t *bytes, const Record *record, Part *ids, Part *type,
                        Scan *scan) {
    const uint8_t *at = bytes + record->headers;
    for (int32_t i = 0; i < record->headers_count; i++) {
        int32_t name_length = read_length(&at);
        const uint8_t *name = at;
        at += name_length;
        Part value = {NULL, read_length(&at)};
        value.bytes = at;
        if (value.length > 0) at += value.length;
        for (int each = 0; each < rules->ids_count; each++)
            if (is_name(&rules->ids[each], name, name_length)) ids[each] = value;
        if (rules->type_header.bytes != NULL && is_name(&rules->type_header, name, name_length)) *type = value;
        if (rules->group_header.bytes != NULL && is_name(&rules->group_header, name, name_length)) scan->group = value;
        if (name_length && name[0] == '_') {
            if (is_one_of(rules->special, rules->special_count, name, name_length)) return 0;
            if (is_one_of(rules->ours, rules->ours_count, name, name_length)) scan->ours++;
        }
    }
    return 1;
}

/* Whether the value of a content type begins as that of CloudEvents in structured mode, in whatever case. A few others pass, too:
 * these are Python's then. */
static int is_structured(const Rules *rules, Part type) {
    if (rules->type_header.bytes == NULL || type.length < rules->type_prefix.length) return 0;
    for (Py_ssize_t i = 0; i < rules->type_prefix.length; i++)
        if ((type.bytes[i] | 0x20) != rules->type_prefix.bytes[i]) return 0;
    return 1;
}

/* Puts an ID of several parts together, each behind its length, unless one is missing. Room is left for the digest of a value. */
static void compose(const Rules *rules, Part key, Part value, const Part *headers, Buffer *to, Part *id) {
    Part parts[NAMES_MAX];
    size_t whole = 0;
    for (int i = 0; i < rules->ids_count; i++) {
        int kind = rules->kinds.bytes[i];
        parts[i] = kind == FROM_KEY ? key : kind == FROM_VALUE ? value : headers[i];
        if (parts[i].length <= 0) return;
        if (kind == FROM_VALUE) parts[i] = (Part){NULL, DIGEST_BYTES};
        whole += 4 + (size_t)parts[i].length;
    }
    if (!buffer_reserve(to, whole)) return;
    *id = (Part){to->bytes + to->length, (int32_t)whole};
    for (int i = 0; i < rules->ids_count; i++) {
        uint8_t length[4];
        store_be32(length, (uint32_t)parts[i].length);
        put_bytes(to, length, 4);
        if (parts[i].bytes != NULL) put_bytes(to, parts[i].bytes, (size_t)parts[i].length);
        else to->length += DIGEST_BYTES;
    }
}

static int scan_record(const Rules *rules, const uint8_t *bytes, const Record *record, Buffer *composed, Scan *scan) {
    Part ids[NAMES_MAX], type = NOTHING;
    for (int i = 0; i < rules->ids_count; i++) ids[i] = NOTHING;
    *scan = (Scan){.id = NOTHING, .group = NOTHING, .twin = -1};
    if (!scan_headers(rules, bytes, record, ids, &type, scan)) return 0;
    Part key = {bytes + record->key, record->key_length}, value = {bytes + record->value, record->value_length};
    if (rules->id_from == FROM_KEY) scan->id = key;
    else if (rules->id_from == FROM_VALUE) scan->id = value;
    else if (rules->id_from == FROM_PARTS) compose(rules, key, value, ids, composed, &scan->id);
    else
        for (int i = 0; i < rules->ids_count && scan->id.length <= 0; i++) scan->id = ids[i];
    if (scan->id.length == 0) scan->id = NOTHING; /* an empty value is no ID */
    if (scan->id.length < 0 && (rules->needed || is_structured(rules, type))) return 0;
    if (rules->group_header.bytes == NULL) scan->group = key;
    else if (scan->group.length <= 0) scan->group = (Part){rules->default_group.bytes, (int32_t)rules->default_group.length};
    if (scan->id.length >= 0) scan->value_digest = value_digest(value.bytes, value.length > 0 ? (size_t)value.length : 0);
    scan->digest = scan->id.length > ID_BYTES_MAX || (rules->id_from == FROM_VALUE && scan->id.length >= 0);
    if (scan->group.length >= 0) {
        scan->hash = hash_of(rules, scan->group);
        return rules->lanes == 1 || home_of(rules, scan->hash) == rules->lane;
    }
    if (rules->lanes == 1 || scan->id.length < 0) return 1;
    return !scan->digest && !rules->late && home_of(rules, hash_of(rules, scan->id)) == rules->lane;
}

/* -- verdicts ------------------------------------------------------------------------------------------------- */

/* The stored form of an ID, and where its bytes are. */
static PyObject *encoded_id(const Rules *rules, const Scan *scan, Name *to) {
    if (scan->digest) {
        PyObject *digest = PyObject_CallFunction(rules->encode, "y#", scan->id.bytes, (Py_ssize_t)scan->id.length);
        if (digest != NULL && !PyBytes_CheckExact(digest)) {
            Py_CLEAR(digest);
            PyErr_SetString(PyExc_TypeError, "an encoded ID is bytes");
        }
        if (digest != NULL) *to = (Name){(const uint8_t *)PyBytes_AsString(digest), PyBytes_Size(digest)};
        return digest;
    }
    Py_ssize_t length = 1 + (Py_ssize_t)scan->id.length;
    PyObject *id = PyBytes_FromStringAndSize(NULL, length);
    if (id != NULL) {
        char *bytes = PyBytes_AsString(id);
        bytes[0] = 0;
        memcpy(bytes + 1, scan->id.bytes, (size_t)scan->id.length);
        *to = (Name){(const uint8_t *)bytes, length};
    }
    return id;
}

/* The place in the table of this batch's new IDs where this one stands, or belongs. */
static size_t place_of(const Work *work, const Name *id, size_t hash) {
    size_t place = hash & work->mask;
    for (; work->fresh[place]; place = (place + 1) & work->mask) {
        const Name *other = &work->ids[work->fresh[place] - 1];
        if (other->length == id->length && memcmp(other->bytes, id->bytes, (size_t)id->length) == 0) break;
    }
    return place;
}

/* As ids_find(), by this batch or the ring. The timestamp is there with a promise. */
static long long known_as(const Work *work, const Name *id, size_t place, uint64_t *digest, int64_t *time) {
    int32_t fresh = work->fresh[place];
    if (!fresh) return ids_find(work->sequences, id->bytes, (size_t)id->length, digest, time);
    *digest = work->digests[fresh - 1];
    *time = work->records->records[work->owners[fresh - 1]].timestamp;
    return work->first + fresh - 1;
}

/* Whether a known ID counts for a message of the one time; the other is that of its record. */
static int is_live(const Work *work, long long known, long long head, int64_t of_message, int64_t of_record) {
    if (known < 0 || known < head - work->capacity || known < work->floor) return 0;
    if (known >= head - work->size || of_message <= of_record) return 1;
    return (uint64_t)of_message - (uint64_t)of_record <= (uint64_t)work->min_age; /* of any two timestamps */
}

/* Puts the digest of a value into the room that its ID of several parts has for it. */
static int fill_digest(const Work *work, const Record *record, Part id) {
    const Rules *rules = &work->rules;
    uint8_t *at = work->composed.bytes + (id.bytes - work->composed.bytes);
    for (int i = 0; i < rules->ids_count; at += 4 + load_be32(at), i++) {
        if (rules->kinds.bytes[i] != FROM_VALUE) continue;
        Scan whole = {.id = {work->places[record->buffer] + record->value, record->value_length}, .digest = 1};
        Name bytes;
        PyObject *digest = encoded_id(rules, &whole, &bytes);
        if (digest == NULL) return 0;
        if (bytes.length == 1 + DIGEST_BYTES) memcpy(at + 4, bytes.bytes + 1, DIGEST_BYTES);
        else PyErr_SetString(PyExc_ValueError, "a digest has another length");
        Py_DECREF(digest);
        if (bytes.length != 1 + DIGEST_BYTES) return 0;
    }
    return 1;
}

/* IDs of several parts are where their buffer is now: it moves while it grows. */
static int settle_composed(Work *work) {
    const uint8_t *at = work->composed.bytes;
    for (Py_ssize_t i = 0; i < work->count; i++) {
        Scan *scan = &work->scans[i];
        if (scan->id.length < 0) continue;
        scan->id.bytes = at;
        at += scan->id.length;
        if (work->rules.late && work->capacity && !fill_digest(work, &work->records->records[i], scan->id)) return 0;
    }
    return 1;
}

/* One after the other, by the running head: as Ring.check(). 0 = an error, or, without one, it is not plain. */
static int judge(Work *work) {
    const Rules *rules = &work->rules;
    for (Py_ssize_t i = 0; i < work->count; i++) {
        Scan *scan = &work->scans[i];
        scan->verdict = UNCHECKED;
        if (work->capacity == 0 || scan->id.length < 0) continue;
        Name bytes;
        PyObject *id = encoded_id(rules, scan, &bytes);
        if (id == NULL) return 0;
        size_t place = place_of(work, &bytes, (size_t)PyObject_Hash(id));
        uint64_t digest = 0;
        int64_t time = 0;
        long long known = known_as(work, &bytes, place, &digest, &time);
        if (is_live(work, known, work->first + work->ids_count, work->records->records[i].timestamp, time)) {
            scan->verdict = digest && digest != scan->value_digest ? CONFLICT : DUPLICATE;
            if (scan->verdict == CONFLICT && rules->conflicts_apart) {
                Py_DECREF(id);
                return 0;
            }
            if (known >= work->first) scan->twin = work->owners[known - work->first];
            work->known[i] = known;
        } else {
            scan->verdict = ACCEPTED;
            if (PyList_Append(work->new_ids, id) < 0) {
                Py_DECREF(id);
                return 0;
            }
            work->owners[work->ids_count] = (int32_t)i;
            work->digests[work->ids_count] = scan->value_digest;
            work->ids[work->ids_count] = bytes;
            work->fresh[place] = ++work->ids_count;
        }
        Py_DECREF(id);
    }
    return 1;
}

static int is_known(const Scan *scan) { return scan->verdict == DUPLICATE || scan->verdict == CONFLICT; }

/* The places of the originals of duplicates that pass, as far as they are known. */
static int find_originals(Work *work) {
    PyObject *wanted = PyList_New(0);
    for (Py_ssize_t i = 0; i < work->count && wanted != NULL; i++) {
        if (!is_known(&work->scans[i]) || work->scans[i].twin >= 0) continue;
        PyObject *known = PyLong_FromLongLong(work->known[i]);
        if (known == NULL || PyList_Append(wanted, known) < 0) Py_CLEAR(wanted);
        Py_XDECREF(known);
    }
    if (wanted == NULL) return 0;
    work->found = PyObject_CallFunctionObjArgs(work->find, wanted, NULL);
    Py_DECREF(wanted);
    if (work->found == NULL) return 0;
    for (Py_ssize_t i = 0; i < work->count; i++) {
        Scan *scan = &work->scans[i];
        if (!is_known(scan) || scan->twin >= 0) continue;
        PyObject *known = PyLong_FromLongLong(work->known[i]);
        PyObject *place = known == NULL ? NULL : PyDict_GetItemWithError(work->found, known);
        Py_XDECREF(known);
        if (place == NULL) {
            if (PyErr_Occurred()) return 0;
            continue;
        }
        char *bytes;
        if (PyBytes_AsStringAndSize(place, &bytes, &scan->original.length) < 0) return 0;
        scan->original.bytes = (const uint8_t *)bytes;
    }
    return 1;
}

/* Records for which the interpreter lock is let go of: for fewer, getting it back may take longer than they do. */
enum { RELEASED_FROM = 256 };

/* plan(records, spans, rules, IDs, capacity, head, floor, spread, now, find, size = capacity, minimum age = none)
 *   -> (verdicts, new IDs, their digests, accepted batches, changelog batches, chunk, oldest timestamp, timestamps of the new IDs) | None
 * The last are there if there is a minimum age. */
PyObject *plan(PyObject *module, PyObject *args) {
    (void)module;
    PyObject *records, *spans, *rules, *result = NULL;
    Work work = {.min_age = -1};
    if (!PyArg_ParseTuple(args, "O!O!O!O!LLLiLO|LL", RecordsType, &records, &PyList_Type, &spans, &PyTuple_Type,
                          &rules, IdsType, &work.sequences, &work.capacity, &work.first, &work.floor, &work.spread, &work.now,
                          &work.find, &work.size, &work.min_age))
        return NULL;
    if (work.min_age < 0) work.size = work.capacity;
    if (!ids_there(work.sequences)) return NULL;
    work.records = (Records *)records;
    work.count = work.records->count;
    if (!rules_of(rules, &work.rules)) return NULL;
    if (!spans_of(spans, &work) || !work_begin(&work)) goto done;
    int plain = 1;
    PyThreadState *released = work.count >= RELEASED_FROM ? PyEval_SaveThread() : NULL;
    for (Py_ssize_t i = 0; i < work.count && plain; i++) {
        const Record *record = &work.records->records[i];
        plain = scan_record(&work.rules, work.places[record->buffer], record, &work.composed, &work.scans[i]);
        if (record->timestamp < work.oldest) work.oldest = record->timestamp;
    }
    if (released != NULL) PyEval_RestoreThread(released);
    if (work.composed.failed) work.failed = 1, plain = 0;
    if (plain) {
        if (work.rules.id_from == FROM_PARTS && !settle_composed(&work)) goto done;
        plain = judge(&work);
        if (PyErr_Occurred() || (plain && work.rules.verdict_header.bytes != NULL && !find_originals(&work))) goto done;
    }
    if (plain) {
        released = work.count >= RELEASED_FROM ? PyEval_SaveThread() : NULL;
        plain = build_accepted(&work) && build_slots(&work);
        if (released != NULL) PyEval_RestoreThread(released);
    }
    if (work.failed) PyErr_NoMemory();
    else result = plain ? work_result(&work) : Py_NewRef(Py_None);
done:
    work_end(&work);
    return result;
}
