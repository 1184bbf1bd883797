/* One batch of records on its way from what was parsed to what is written. */
#ifndef RINGFENCE_PLAN_H
#define RINGFENCE_PLAN_H

#include "core.h"

enum { FROM_HEADER = 0, FROM_KEY = 1, FROM_VALUE = 2, FROM_PARTS = 3 };
enum { ACCEPTED = 0, DUPLICATE = 1, UNCHECKED = 2, CONFLICT = 3 };
enum { NAMES_MAX = 16, ID_BYTES_MAX = 256, DIGEST_BYTES = 32 };
/* Of the changelog, see tables/codec.py. */
enum { KIND_RING = 1, RING_KEY_BYTES = 9, RING_VALUE_BYTES = 37, FORMAT_VERSION = 2 };

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t length;
} Name;

/* Length -1 = null. */
typedef struct {
    const uint8_t *bytes;
    int32_t length;
} Part;
#define NOTHING ((Part){NULL, -1})

/* How one address is configured, and where its lane is. */
typedef struct {
    int id_from;
    Name ids[NAMES_MAX], ours[NAMES_MAX], special[NAMES_MAX];
    int ids_count, ours_count, special_count;
    Name kinds;        /* of each part of an ID, where it is FROM_PARTS; a part that is no header has an empty name */
    Name type_header;  /* NULL = no part may be an attribute of CloudEvents */
    Name type_prefix;  /* of such a record's content type, in lower case */
    int needed;        /* whether a message without an ID is refused */
    int late;          /* whether a part is the digest of the value, which takes the interpreter */
    Name group_header; /* NULL = the key is the group */
    Name default_group, source_header, key_header;
    Name sequence_header; /* NULL = accepted records carry no sequence */
    Name verdict_header;  /* NULL = duplicates are dropped; else all pass, and carry their verdict */
    int lane, lanes, homes, targets, crc32;
    int conflicts_apart; /* a duplicate with another value is not plain */
    Py_ssize_t batch_bytes, bytes_max;
    PyObject *encode; /* makes the stored form of an ID, or of a value, that is kept as its digest */
} Rules;

/* Records of one input partition, of which a lane may have several. */
typedef struct {
    Py_ssize_t end; /* the number of the first record behind them */
    Name place;     /* of _RF_SOURCE, up to the offset */
    int partition;
} Span;

typedef struct {
    Part id, group;
    Name original;   /* of a duplicate that passes: its original's place; NULL = see `twin` */
    int32_t twin;    /* the record of this batch that is its original; -1 = none is */
    uint64_t value_digest; /* where there is an ID */
    uint32_t hash; /* of the group */
    int32_t ours;  /* headers that are left out */
    uint8_t digest, verdict;
} Scan;

typedef struct {
    Rules rules;
    Records *records;
    Py_ssize_t count;
    Span *spans;
    Py_ssize_t spans_count;
    PyObject *sequences;
    PyObject *find;    /* gives the places of the originals of duplicates, by their sequences */
    PyObject *found;   /* its answer, which keeps their bytes */
    long long *known;  /* of each record the sequence of its original */
    long long capacity, first, floor, now;
    long long size, min_age; /* so many IDs count whatever their age; others while they are this young. min_age -1 = no promise */
    int spread;
    const uint8_t **places; /* the bytes of each buffer */
    Scan *scans;
    Buffer composed; /* IDs of several parts, one behind the other */
    int32_t *fresh; /* hash table: 1 + number of a new ID */
    size_t mask;
    int32_t *owners; /* of each new ID the record that it came with */
    uint64_t *digests; /* of each new ID the digest of its record's value */
    PyObject *new_ids;
    Name *ids; /* their bytes, which new_ids keeps */
    int32_t ids_count;
    int64_t oldest;
    Batch *batches; /* of the accepted topic, in the order in which they were begun */
    size_t batches_count, batches_room;
    int32_t *open; /* 1 + number of the batch that is being filled, by partition */
    size_t *full;  /* numbers of those that are full, in that order */
    size_t full_count, full_room;
    Batch *slots; /* of the changelog */
    size_t slots_count, slots_room;
    Buffer chunk;
    int failed; /* no memory */
} Work;

int work_begin(Work *work);
void work_end(Work *work);
PyObject *work_result(Work *work);
int build_accepted(Work *work);
int build_slots(Work *work);

#endif
