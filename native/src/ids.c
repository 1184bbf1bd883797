/* A ring's IDs in memory: which sequence each has, as ResidentIndex in tables/ring.py, which is the reference.
 *
 * The IDs stand one behind the other in blocks, in the order of their sequences, each behind its sequence and its length. A hash
 * table says where. What is forgotten is the oldest, so that blocks are let go of at one end while they grow at the other. The
 * table is in shelves that grow one by one: to double all of it at once would hold up who else is on the loop. */
#include "core.h"

/* Of an entry: the sequence's lower 32 bits, the digest of the value, the ID's length, the timestamp if there is one, the ID; then up to a
 * multiple of 4. */
enum { LENGTH_AT = 12, ENTRY_BYTES = 14, TIME_BYTES = 8, UNIT_BITS = 2, ID_LENGTH_MAX = 1024 };
enum { BLOCK_BITS_MIN = 12, BLOCK_BITS_MAX = 18, SHELF_IDS = 1 << 15, SHELF_ROOM_MIN = 16 };
enum { RING_KEY_BYTES = 9, RING_KIND = 1 };
/* A ring record of format 1 has no digest. */
enum { PLAIN_FORMAT = 1, DIGEST_FORMAT = 2, TIME_AT = 21, DIGEST_AT = 29, DIGEST_BYTES = 8 };

/* Where an entry stands, in units of 4 bytes; 0 = nothing does. No entry stands at the beginning of a block. */
typedef struct {
    uint32_t tag, at;
} Cell;

typedef struct {
    Cell *cells;
    uint32_t room, used;
} Shelf;

typedef struct {
    PyObject_HEAD
    uint64_t key[2];
    long long capacity;
    Shelf *shelves;
    unsigned shelf_bits, entry_bytes; /* before an ID: with its timestamp, or without */
    uint32_t shelf_room; /* of one, when the ring is full */
    uint8_t **blocks;    /* the block with number n at n % room; its first 4 bytes say how many are in use */
    uint32_t blocks_room, blocks_count, first_block;
    unsigned block_bits;
    uint32_t oldest;     /* in the first block, bytes */
    long long low, last; /* what is below the one is forgotten; the other is the highest, low - 1 = there is none */
    Py_ssize_t count, known;
    int gone;
} Ids;

/* -- hash ------------------------------------------------------------------------------------------------------ */

static inline uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }

static inline void sip_round(uint64_t *v) {
    v[0] += v[1], v[1] = turned(v[1], 13) ^ v[0], v[0] = turned(v[0], 32);
    v[2] += v[3], v[3] = turned(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = turned(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = turned(v[1], 17) ^ v[2], v[2] = turned(v[2], 32);
}

/* SipHash-1-3, with a key of this process: who chooses IDs cannot choose them to fall on one place. */
static uint64_t hash_of_id(const Ids *self, const uint8_t *bytes, size_t length) {
    uint64_t v[4] = {self->key[0] ^ 0x736f6d6570736575u, self->key[1] ^ 0x646f72616e646f6du,
                     self->key[0] ^ 0x6c7967656e657261u, self->key[1] ^ 0x7465646279746573u};
    uint64_t word;
    size_t left = length;
    for (; left >= 8; bytes += 8, left -= 8) {
        memcpy(&word, bytes, 8);
        v[3] ^= word, sip_round(v), v[0] ^= word;
    }
    word = 0;
    memcpy(&word, bytes, left);
    word |= (uint64_t)length << 56;
    v[3] ^= word, sip_round(v), v[0] ^= word;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* -- the table ------------------------------------------------------------------------------------------------- */

static inline Shelf *shelf_of(const Ids *self, uint64_t hash) {
    return &self->shelves[self->shelf_bits ? hash >> (64 - self->shelf_bits) : 0];
}
static inline uint32_t home_of(const Shelf *shelf, uint32_t tag) {
    return (uint32_t)((uint64_t)tag * shelf->room >> 32);
}
static inline uint32_t next_place(const Shelf *shelf, uint32_t place) { return ++place == shelf->room ? 0 : place; }

static inline uint8_t *entry_at(const Ids *self, uint32_t at) {
    uint32_t number = at >> (self->block_bits - UNIT_BITS);
    uint32_t offset = (at & ((1u << (self->block_bits - UNIT_BITS)) - 1)) << UNIT_BITS;
    return self->blocks[number & (self->blocks_room - 1)] + offset;
}
static inline size_t entry_size(const Ids *self, size_t length) { return (self->entry_bytes + length + 3) & ~(size_t)3; }
static inline int is_timed(const Ids *self) { return self->entry_bytes > ENTRY_BYTES; }
static inline int64_t entry_time(const uint8_t *entry) {
    int64_t time;
    memcpy(&time, entry + ENTRY_BYTES, TIME_BYTES);
    return time;
}
static inline uint16_t entry_length(const uint8_t *entry) {
    uint16_t length;
    memcpy(&length, entry + LENGTH_AT, 2);
    return length;
}
static inline long long entry_sequence(const Ids *self, const uint8_t *entry) {
    uint32_t lower;
    memcpy(&lower, entry, 4);
    return self->low + (uint32_t)(lower - (uint32_t)self->low);
}

/* The place of an ID; where it is not known, the free one that it belongs to. */
static uint32_t place_in(const Ids *self, const Shelf *shelf, uint32_t tag, const uint8_t *bytes, size_t length) {
    uint32_t place = home_of(shelf, tag);
    for (; shelf->cells[place].at; place = next_place(shelf, place)) {
        if (shelf->cells[place].tag != tag) continue;
        const uint8_t *entry = entry_at(self, shelf->cells[place].at);
        if (entry_length(entry) == length && memcmp(entry + self->entry_bytes, bytes, length) == 0) break;
    }
    return place;
}

/* Room for one more; 0 = no memory. The last size is what a full ring needs. */
static int shelf_grown(const Ids *self, Shelf *shelf) {
    if (shelf->cells != NULL && (uint64_t)(shelf->used + 1) * 5 <= (uint64_t)shelf->room * 4) return 1;
    uint32_t room = shelf->room < SHELF_ROOM_MIN ? SHELF_ROOM_MIN : shelf->room + shelf->room / 2;
    if (shelf->room < self->shelf_room && (uint64_t)room * 4 > (uint64_t)self->shelf_room * 3) room = self->shelf_room;
    Shelf grown = {calloc(room, sizeof(Cell)), room, shelf->used};
    if (grown.cells == NULL) return 0;
    for (uint32_t i = 0; i < shelf->room; i++) {
        if (!shelf->cells[i].at) continue;
        uint32_t place = home_of(&grown, shelf->cells[i].tag);
        while (grown.cells[place].at) place = next_place(&grown, place);
        grown.cells[place] = shelf->cells[i];
    }
    free(shelf->cells);
    *shelf = grown;
    return 1;
}

/* Free a place, and have those behind it move up that belong before it. */
static void vacate(Shelf *shelf, uint32_t hole) {
    for (uint32_t place = next_place(shelf, hole); shelf->cells[place].at; place = next_place(shelf, place)) {
        uint32_t home = home_of(shelf, shelf->cells[place].tag);
        int stays = place > hole ? home > hole && home <= place : home > hole || home <= place;
        if (stays) continue;
        shelf->cells[hole] = shelf->cells[place];
        hole = place;
    }
    shelf->cells[hole] = (Cell){0, 0};
    shelf->used--;
}

/* -- the entries ----------------------------------------------------------------------------------------------- */

static uint32_t block_used(const uint8_t *block) {
    uint32_t used;
    memcpy(&used, block, 4);
    return used;
}

static int blocks_grown(Ids *self) {
    if (self->blocks_count < self->blocks_room) return 1;
    uint32_t room = self->blocks_room ? 2 * self->blocks_room : 4;
    if (room > 1u << (32 - self->block_bits + UNIT_BITS)) return 0; /* 16 GiB */
    uint8_t **blocks = malloc(room * sizeof(*blocks));
    if (blocks == NULL) return 0;
    for (uint32_t i = self->first_block; i != self->first_block + self->blocks_count; i++)
        blocks[i & (room - 1)] = self->blocks[i & (self->blocks_room - 1)];
    free(self->blocks);
    self->blocks = blocks;
    self->blocks_room = room;
    return 1;
}

/* Where an entry of this size may be written; 0 = no memory. */
static uint32_t entry_room(Ids *self, size_t size) {
    uint8_t *block = NULL;
    if (self->blocks_count) block = self->blocks[(self->first_block + self->blocks_count - 1) & (self->blocks_room - 1)];
    if (block == NULL || block_used(block) + size > (size_t)1 << self->block_bits) {
        if (!blocks_grown(self) || (block = malloc((size_t)1 << self->block_bits)) == NULL) return 0;
        uint32_t used = 1 << UNIT_BITS;
        memcpy(block, &used, 4);
        if (!self->blocks_count) self->oldest = used;
        self->blocks[(self->first_block + self->blocks_count++) & (self->blocks_room - 1)] = block;
    }
    uint32_t number = self->first_block + self->blocks_count - 1;
    return (number << (self->block_bits - UNIT_BITS)) + (block_used(block) >> UNIT_BITS);
}

/* The next ID, with a sequence above the last. 0 = no memory, or the distance is beyond what is told apart. */
static int add(Ids *self, long long sequence, uint64_t digest, const uint8_t *bytes, size_t length, int64_t time) {
    if (length > ID_LENGTH_MAX || sequence <= self->last || sequence < self->low || sequence - self->low > UINT32_MAX) return 0;
    uint64_t hash = hash_of_id(self, bytes, length);
    uint32_t tag = (uint32_t)hash, at = entry_room(self, entry_size(self, length));
    Shelf *shelf = shelf_of(self, hash);
    if (!at || !shelf_grown(self, shelf)) return 0;
    uint32_t place = place_in(self, shelf, tag, bytes, length);
    uint8_t *entry = entry_at(self, at);
    uint32_t lower = (uint32_t)sequence;
    uint16_t short_length = (uint16_t)length;
    memcpy(entry, &lower, 4);
    memcpy(entry + 4, &digest, 8);
    memcpy(entry + LENGTH_AT, &short_length, 2);
    if (is_timed(self)) memcpy(entry + ENTRY_BYTES, &time, TIME_BYTES);
    memcpy(entry + self->entry_bytes, bytes, length);
    uint8_t *block = self->blocks[(self->first_block + self->blocks_count - 1) & (self->blocks_room - 1)];
    uint32_t used = block_used(block) + (uint32_t)entry_size(self, length);
    memcpy(block, &used, 4);
    /* Of two entries of one ID the later stands. */
    if (!shelf->cells[place].at) shelf->used++, self->known++;
    shelf->cells[place] = (Cell){tag, at};
    self->last = sequence;
    self->count++;
    return 1;
}

/* Forget what lies below. */
static void forget(Ids *self, long long low) {
    if (low <= self->low) return;
    while (self->count) {
        uint8_t *block = self->blocks[self->first_block & (self->blocks_room - 1)];
        if (self->oldest >= block_used(block)) {
            free(block);
            self->first_block++, self->blocks_count--;
            self->oldest = 1 << UNIT_BITS;
            continue;
        }
        const uint8_t *entry = block + self->oldest;
        if (entry_sequence(self, entry) >= low) break;
        size_t length = entry_length(entry);
        uint64_t hash = hash_of_id(self, entry + self->entry_bytes, length);
        uint32_t at = (self->first_block << (self->block_bits - UNIT_BITS)) + (self->oldest >> UNIT_BITS);
        Shelf *shelf = shelf_of(self, hash);
        uint32_t place = home_of(shelf, (uint32_t)hash);
        while (shelf->cells[place].at && shelf->cells[place].at != at) place = next_place(shelf, place);
        /* One that was evicted and accepted again is known under its newer sequence: keep that. */
        if (shelf->cells[place].at) vacate(shelf, place), self->known--;
        self->oldest += (uint32_t)entry_size(self, length);
        self->count--;
    }
    self->low = low;
    if (self->last < low - 1) self->last = low - 1;
}

/* -- for the other parts of the core --------------------------------------------------------------------------- */

long long ids_find(PyObject *object, const uint8_t *bytes, size_t length, uint64_t *digest, int64_t *time) {
    const Ids *self = (const Ids *)object;
    uint64_t hash = hash_of_id(self, bytes, length);
    const Shelf *shelf = shelf_of(self, hash);
    if (shelf->cells == NULL) return -1;
    const Cell *cell = &shelf->cells[place_in(self, shelf, (uint32_t)hash, bytes, length)];
    if (!cell->at) return -1;
    const uint8_t *entry = entry_at(self, cell->at);
    memcpy(digest, entry + 4, 8);
    if (is_timed(self)) *time = entry_time(entry);
    return entry_sequence(self, entry);
}

static int there(Ids *self) {
    if (self->gone) PyErr_SetString(PyExc_ValueError, "these IDs were let go of");
    return !self->gone;
}
int ids_there(PyObject *object) { return there((Ids *)object); }

/* -- methods --------------------------------------------------------------------------------------------------- */

/* Ids(capacity, low, timed = no): with timestamps or without */
static PyObject *ids_new(PyTypeObject *type, PyObject *args, PyObject *names) {
    (void)names;
    long long capacity, low;
    int timed = 0;
    if (!PyArg_ParseTuple(args, "LL|p", &capacity, &low, &timed)) return NULL;
    if (capacity < 0 || capacity > UINT32_MAX || low < 0) return PyErr_Format(PyExc_ValueError, "no ring has these");
    Ids *self = (Ids *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->capacity = capacity;
    self->entry_bytes = ENTRY_BYTES + (timed ? TIME_BYTES : 0);
    self->low = low;
    self->last = low - 1;
    while (self->shelf_bits < 16 && capacity >> self->shelf_bits > SHELF_IDS) self->shelf_bits++;
    long long shelf_ids = capacity >> self->shelf_bits;
    self->shelf_room = (uint32_t)(shelf_ids + shelf_ids / 12 + 16) / 3 * 4;
    self->block_bits = BLOCK_BITS_MIN;
    while (self->block_bits < BLOCK_BITS_MAX && 1ll << self->block_bits < capacity * 3) self->block_bits++;
    self->shelves = calloc((size_t)1 << self->shelf_bits, sizeof(Shelf));
    for (int i = 0; i < 2; i++) {
        PyObject *seed = PyBytes_FromStringAndSize(i ? "ringfence 1" : "ringfence 0", 11);
        if (seed != NULL) self->key[i] = (uint64_t)PyObject_Hash(seed); /* keyed by Python, for each process anew */
        Py_XDECREF(seed);
    }
    if (self->shelves == NULL) PyErr_NoMemory();
    if (PyErr_Occurred()) Py_CLEAR(self);
    return (PyObject *)self;
}

static void ids_free(Ids *self) {
    for (uint32_t i = 0; i < self->blocks_count; i++) free(self->blocks[(self->first_block + i) & (self->blocks_room - 1)]);
    for (size_t i = 0; self->shelves != NULL && i < (size_t)1 << self->shelf_bits; i++) free(self->shelves[i].cells);
    free(self->blocks);
    free(self->shelves);
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *failed_to_add(const Ids *self, long long sequence, size_t length) {
    if (length > ID_LENGTH_MAX) return PyErr_Format(PyExc_ValueError, "an ID of %zu bytes", length);
    if (sequence <= self->last || sequence - self->low > UINT32_MAX)
        return PyErr_Format(PyExc_ValueError, "sequence %lld behind %lld", sequence, self->last);
    return PyErr_NoMemory();
}

/* note(first sequence, ids, digests, low, their timestamps where these are kept): as ResidentIndex.add(). A digest has 8 bytes, in the
 * order of this machine. */
static PyObject *ids_note(Ids *self, PyObject *args) {
    long long first, low;
    const char *digests;
    Py_ssize_t digests_bytes;
    PyObject *ids, *times = NULL;
    if (!PyArg_ParseTuple(args, "LO!y#L|O!", &first, &PyList_Type, &ids, &digests, &digests_bytes, &low, &PyList_Type, &times) ||
        !there(self))
        return NULL;
    Py_ssize_t count = PyList_Size(ids);
    if (digests_bytes != count * DIGEST_BYTES) return PyErr_Format(PyExc_ValueError, "%zd bytes of digests for %zd IDs", digests_bytes, count);
    if (is_timed(self) && (times == NULL || PyList_Size(times) != count)) return PyErr_Format(PyExc_ValueError, "IDs without timestamps");
    for (Py_ssize_t i = 0; i < count; i++) {
        char *bytes;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(ids, i), &bytes, &length) < 0) return NULL;
        long long time = is_timed(self) ? PyLong_AsLongLong(PyList_GetItem(times, i)) : 0;
        if (time == -1 && PyErr_Occurred()) return NULL;
        uint64_t digest;
        memcpy(&digest, digests + i * DIGEST_BYTES, DIGEST_BYTES);
        if (!add(self, first + i, digest, (const uint8_t *)bytes, (size_t)length, time))
            return failed_to_add(self, first + i, (size_t)length);
    }
    forget(self, low);
    Py_RETURN_NONE;
}

static PyObject *ids_lookup(Ids *self, PyObject *ids) {
    PyObject *sequence = PySequence_List(ids);
    if (sequence == NULL) return NULL;
    Py_ssize_t count = PyList_Size(sequence);
    PyObject *found = there(self) ? PyList_New(count) : NULL;
    for (Py_ssize_t i = 0; i < count && found != NULL; i++) {
        char *bytes;
        Py_ssize_t length;
        PyObject *known = NULL;
        if (PyBytes_AsStringAndSize(PyList_GetItem(sequence, i), &bytes, &length) == 0) {
            uint64_t digest;
            int64_t time;
            long long as = ids_find((PyObject *)self, (const uint8_t *)bytes, (size_t)length, &digest, &time);
            known = as < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(as);
        }
        if (known == NULL) Py_CLEAR(found);
        else PyList_SetItem(found, i, known);
    }
    Py_DECREF(sequence);
    return found;
}

/* time(ID): the timestamp of one that is known. */
static PyObject *ids_time(Ids *self, PyObject *id) {
    char *bytes;
    Py_ssize_t length;
    uint64_t digest;
    int64_t time;
    if (!there(self) || PyBytes_AsStringAndSize(id, &bytes, &length) < 0) return NULL;
    if (!is_timed(self) || ids_find((PyObject *)self, (const uint8_t *)bytes, (size_t)length, &digest, &time) < 0)
        return PyErr_Format(PyExc_KeyError, "no timestamp of this ID");
    return PyLong_FromLongLong(time);
}

/* leaving(low, gone, until, before) -> (broken, floor): as leaving() in tables/promise.py */
static PyObject *ids_leaving(Ids *self, PyObject *args) {
    long long low, gone, until, before, broken = 0;
    if (!PyArg_ParseTuple(args, "LLLL", &low, &gone, &until, &before) || !there(self)) return NULL;
    if (!is_timed(self)) return PyErr_Format(PyExc_ValueError, "IDs without timestamps");
    uint32_t offset = self->oldest;
    for (uint32_t i = 0; i < self->blocks_count; i++, offset = 1 << UNIT_BITS) {
        const uint8_t *block = self->blocks[(self->first_block + i) & (self->blocks_room - 1)];
        while (offset < block_used(block)) {
            const uint8_t *entry = block + offset;
            long long sequence = entry_sequence(self, entry);
            int young = entry_time(entry) >= before;
            if (sequence >= gone && (young || sequence >= until))
                return Py_BuildValue("LL", broken, sequence < until ? sequence : until > gone ? until : gone);
            if (sequence >= low && sequence < gone) broken += young;
            offset += (uint32_t)entry_size(self, entry_length(entry));
        }
    }
    return Py_BuildValue("LL", broken, until > gone ? until : gone);
}

/* Where the ID stands in a ring record's value; 0 = it is none. */
static size_t id_begin(const uint8_t *value, Py_ssize_t length) {
    if (length < DIGEST_AT || (value[0] != PLAIN_FORMAT && value[0] != DIGEST_FORMAT)) return 0;
    size_t begin = DIGEST_AT + (value[0] == DIGEST_FORMAT ? DIGEST_BYTES : 0);
    return (size_t)length >= begin && (size_t)length <= begin + ID_LENGTH_MAX ? begin : 0;
}

static int add_value(Ids *self, long long sequence, const uint8_t *value, size_t length) {
    size_t begin = id_begin(value, (Py_ssize_t)length);
    uint64_t digest = begin > DIGEST_AT ? (uint64_t)load_be64(value + DIGEST_AT) : 0;
    return add(self, sequence, digest, value + begin, length - begin, load_be64(value + TIME_AT));
}

/* gather(records, from, most, above) -> (where it ended, how many, the capacity that they name, their values as a chunk): ring records as
 * they stand in a changelog, as long as each sequence follows the one before. Those up to `above` are passed over. What is surely dead is
 * forgotten: the head is above the last. */
static PyObject *ids_gather(Ids *self, PyObject *args) {
    PyObject *object;
    Py_ssize_t from, most;
    long long above;
    if (!PyArg_ParseTuple(args, "O!nnL", RecordsType, &object, &from, &most, &above) || !there(self)) return NULL;
    const Records *records = (const Records *)object;
    if (from < 0) return PyErr_Format(PyExc_IndexError, "no such record");
    Buffer chunk = {0};
    long long capacity = 0, gathered = 0;
    const uint8_t *bytes = NULL;
    Py_ssize_t buffer = -1; /* whose bytes these are */
    Py_ssize_t i = from;
    for (; i < records->count && i - from < most; i++) {
        const Record *record = &records->records[i];
        if (buffer != (Py_ssize_t)record->buffer) {
            buffer = (Py_ssize_t)record->buffer;
            bytes = (const uint8_t *)PyBytes_AsString(PyTuple_GetItem(records->buffers, buffer));
        }
        const uint8_t *key = bytes + record->key, *value = bytes + record->value;
        if (record->key_length != RING_KEY_BYTES || key[0] != RING_KIND) break;
        if (load_be32(key + 1) == 0 || (capacity && load_be32(key + 1) != capacity)) break;
        if (!id_begin(value, record->value_length)) break;
        long long sequence = load_be64(value + 1);
        if (sequence < 0 || sequence % load_be32(key + 1) != load_be32(key + 5)) break;
        if (sequence <= above && !gathered) continue;
        if (sequence <= self->last || (gathered && sequence != self->last + 1)) break;
        if (sequence - self->low > UINT32_MAX / 2) forget(self, sequence - self->capacity);
        capacity = load_be32(key + 1);
        size_t length = (size_t)record->value_length;
        if (!add_value(self, sequence, value, length)) {
            failed_to_add(self, sequence, length - id_begin(value, (Py_ssize_t)length));
            break;
        }
        uint8_t prefix[2];
        store_be16(prefix, (uint16_t)length);
        put_bytes(&chunk, prefix, 2);
        put_bytes(&chunk, value, length);
        gathered++;
    }
    forget(self, self->last + 1 - self->capacity);
    PyObject *found = NULL;
    if (chunk.failed) PyErr_NoMemory();
    else if (!PyErr_Occurred())
        found = Py_BuildValue("nLLy#", i, gathered, capacity, chunk.bytes ? (char *)chunk.bytes : "", (Py_ssize_t)chunk.length);
    free(chunk.bytes);
    return found;
}

/* load(chunk) -> whether all of it was read: its ring records as far as they lie above the last. */
static PyObject *ids_load(Ids *self, PyObject *chunk) {
    if (!PyBytes_Check(chunk)) return PyErr_Format(PyExc_TypeError, "a chunk is bytes");
    if (!there(self)) return NULL;
    const uint8_t *at = (const uint8_t *)PyBytes_AsString(chunk), *end = at + PyBytes_Size(chunk);
    while (at < end) {
        Py_ssize_t length = end - at < 2 ? 0 : load_be16(at);
        const uint8_t *value = at + 2;
        if (length > end - at - 2 || !id_begin(value, length)) Py_RETURN_FALSE;
        long long sequence = load_be64(value + 1);
        if (sequence < 0) Py_RETURN_FALSE;
        if (sequence > self->last && !add_value(self, sequence, value, (size_t)length))
            return failed_to_add(self, sequence, (size_t)length - id_begin(value, length));
        at = value + length;
    }
    Py_RETURN_TRUE;
}

/* settle(low, head) -> whether each sequence from the one to before the other is there, and none above. */
static PyObject *ids_settle(Ids *self, PyObject *args) {
    long long low, head;
    if (!PyArg_ParseTuple(args, "LL", &low, &head) || !there(self)) return NULL;
    forget(self, low);
    /* Sequences rise: so many of them, none below the one and none above the other, are all of them. */
    return PyBool_FromLong(self->low == low && self->count == head - low && self->last == head - 1);
}

/* entries() -> [(sequence, ID)], those whose ID is known by a later one too. */
static PyObject *ids_entries(Ids *self, PyObject *nothing) {
    (void)nothing;
    if (!there(self)) return NULL;
    PyObject *found = PyList_New(0);
    uint32_t offset = self->oldest;
    for (uint32_t i = 0; i < self->blocks_count && found != NULL; i++, offset = 1 << UNIT_BITS) {
        const uint8_t *block = self->blocks[(self->first_block + i) & (self->blocks_room - 1)];
        while (offset < block_used(block) && found != NULL) {
            const uint8_t *entry = block + offset;
            size_t length = entry_length(entry);
            PyObject *pair = Py_BuildValue("Ly#", entry_sequence(self, entry), entry + self->entry_bytes, (Py_ssize_t)length);
            if (pair == NULL || PyList_Append(found, pair) < 0) Py_CLEAR(found);
            Py_XDECREF(pair);
            offset += (uint32_t)entry_size(self, length);
        }
    }
    return found;
}

static PyObject *ids_size(Ids *self, PyObject *nothing) {
    (void)nothing;
    Py_ssize_t size = (Py_ssize_t)self->blocks_count << self->block_bits;
    size += (Py_ssize_t)(self->blocks_room * sizeof(*self->blocks) + (sizeof(Shelf) << self->shelf_bits));
    for (size_t i = 0; i < (size_t)1 << self->shelf_bits; i++) size += (Py_ssize_t)(self->shelves[i].room * sizeof(Cell));
    return PyLong_FromSsize_t(size);
}

/* let_go(most) -> whether something is left: so many blocks and shelves are freed. There is nothing to be asked any more. */
static PyObject *ids_let_go(Ids *self, PyObject *most) {
    long left = PyLong_AsLong(most);
    if (left == -1 && PyErr_Occurred()) return NULL;
    self->gone = 1;
    self->count = self->known = 0;
    for (; self->blocks_count && left > 0; left--) free(self->blocks[self->first_block++ & (self->blocks_room - 1)]), self->blocks_count--;
    for (size_t i = 0; i < (size_t)1 << self->shelf_bits && left > 0; i++)
        if (self->shelves[i].cells != NULL) free(self->shelves[i].cells), self->shelves[i] = (Shelf){0}, left--;
    return PyBool_FromLong(left <= 0);
}

static Py_ssize_t ids_length(Ids *self) { return self->known; }
static PyObject *ids_timed(Ids *self, void *nothing) { return (void)nothing, PyBool_FromLong(is_timed(self)); }
static PyObject *ids_low(Ids *self, void *nothing) { return (void)nothing, PyLong_FromLongLong(self->low); }
static PyObject *ids_last(Ids *self, void *nothing) { return (void)nothing, PyLong_FromLongLong(self->last); }

static PyMethodDef methods[] = {
    {"note", (PyCFunction)ids_note, METH_VARARGS, "Note new IDs, and forget what lies below."},
    {"lookup", (PyCFunction)ids_lookup, METH_O, "The latest sequence known for each ID."},
    {"time", (PyCFunction)ids_time, METH_O, "The timestamp of a known ID."},
    {"leaving", (PyCFunction)ids_leaving, METH_VARARGS, "How many young IDs leave, and which is the first that stays."},
    {"gather", (PyCFunction)ids_gather, METH_VARARGS, "Ring records of a changelog, as far as they follow one another."},
    {"load", (PyCFunction)ids_load, METH_O, "Ring records of a chunk, as far as they lie above the last."},
    {"settle", (PyCFunction)ids_settle, METH_VARARGS, "Whether all of a ring is there, and no more."},
    {"entries", (PyCFunction)ids_entries, METH_NOARGS, "Sequence and ID of all that is there."},
    {"size", (PyCFunction)ids_size, METH_NOARGS, "Bytes of memory."},
    {"let_go", (PyCFunction)ids_let_go, METH_O, "Free some of it: nobody is to ask it any more."},
    {0},
};
static PyGetSetDef attributes[] = {
    {"timed", (getter)ids_timed, NULL, "Whether it has timestamps.", NULL},
    {"low", (getter)ids_low, NULL, "What is below is forgotten.", NULL},
    {"last", (getter)ids_last, NULL, "The highest sequence; one below the lowest = there is none.", NULL},
    {0},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "The IDs of a ring, and the sequence of each."},
    {Py_tp_new, ids_new},
    {Py_tp_dealloc, ids_free},
    {Py_sq_length, ids_length},
    {Py_tp_methods, methods},
    {Py_tp_getset, attributes},
    {0},
};
static PyType_Spec spec = {
    .name = "native._core.Ids",
    .basicsize = sizeof(Ids),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
PyTypeObject *IdsType;

/* Make the type; 0 = it failed. */
int ids_prepare(void) {
    if (IdsType == NULL) IdsType = (PyTypeObject *)PyType_FromSpec(&spec);
    return IdsType != NULL;
}
