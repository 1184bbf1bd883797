/* CRC-32C of record batches, the hashes of Kafka's partitioners, and the digest of values. */
#include "core.h"

static uint32_t castagnoli[8][256];
static uint32_t zlib_table[256];
static int has_instruction;

static void fill(uint32_t *table, uint32_t polynomial) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        table[i] = crc;
    }
}

void checksums_prepare(void) {
    fill(castagnoli[0], 0x82f63b78u);
    fill(zlib_table, 0xedb88320u);
    for (int row = 1; row < 8; row++)
        for (int i = 0; i < 256; i++) {
            uint32_t crc = castagnoli[row - 1][i];
            castagnoli[row][i] = crc >> 8 ^ castagnoli[0][crc & 0xff];
        }
#if defined(__x86_64__) && defined(__GNUC__)
    has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *bytes, size_t length) {
    uint64_t wide = crc;
    for (; length >= 8; bytes += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; length; bytes++, length--) crc = __builtin_ia32_crc32qi(crc, *bytes);
    return crc;
}
#else
static uint32_t by_instruction(uint32_t crc, const uint8_t *bytes, size_t length) {
    (void)bytes, (void)length;
    return crc;
}
#endif

static uint32_t by_table(uint32_t crc, const uint8_t *bytes, size_t length) {
    for (; length >= 8; bytes += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                              (uint32_t)bytes[3] << 24);
        crc = castagnoli[7][low & 0xff] ^ castagnoli[6][low >> 8 & 0xff] ^ castagnoli[5][low >> 16 & 0xff] ^
              castagnoli[4][low >> 24] ^ castagnoli[3][bytes[4]] ^ castagnoli[2][bytes[5]] ^
              castagnoli[1][bytes[6]] ^ castagnoli[0][bytes[7]];
    }
    for (; length; bytes++, length--) crc = crc >> 8 ^ castagnoli[0][(crc ^ *bytes) & 0xff];
    return crc;
}

uint32_t crc32c(const uint8_t *bytes, size_t length) {
    return ~(has_instruction ? by_instruction : by_table)(0xffffffffu, bytes, length);
}

uint32_t crc32c_by_table(const uint8_t *bytes, size_t length) { return ~by_table(0xffffffffu, bytes, length); }

uint32_t crc32_zlib(const uint8_t *bytes, size_t length) {
    uint32_t crc = 0xffffffffu;
    for (; length; bytes++, length--) crc = crc >> 8 ^ zlib_table[(crc ^ *bytes) & 0xff];
    return ~crc;
}

uint32_t murmur2(const uint8_t *bytes, size_t length) {
    const uint32_t m = 0x5bd1e995u;
    uint32_t h = 0x9747b28cu ^ (uint32_t)length;
    for (; length >= 4; bytes += 4, length -= 4) {
        uint32_t k = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
        k *= m;
        k ^= k >> 24;
        k *= m;
        h = h * m ^ k;
    }
    if (length) {
        for (size_t i = 0; i < length; i++) h ^= (uint32_t)bytes[i] << 8 * i;
        h *= m;
    }
    h ^= h >> 13;
    h *= m;
    return h ^ h >> 15;
}

/* -- XXH64 with seed 42 (xxHash specification 0.1.1), as Spark's xxhash64 ------------------------------------------- */

#define XX_1 0x9E3779B185EBCA87u
#define XX_2 0xC2B2AE3D27D4EB4Fu
#define XX_3 0x165667B19E3779F9u
#define XX_4 0x85EBCA77C2B2AE63u
#define XX_5 0x27D4EB2F165667C5u
enum { XX_SEED = 42 };

static inline uint64_t turned(uint64_t value, int by) { return value << by | value >> (64 - by); }
static inline uint64_t load_le64(const uint8_t *from) {
    uint64_t value;
    memcpy(&value, from, 8);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}
static inline uint32_t load_le32(const uint8_t *from) {
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}
static inline uint64_t xx_round(uint64_t sum, uint64_t word) { return turned(sum + word * XX_2, 31) * XX_1; }
static inline uint64_t xx_merge(uint64_t hash, uint64_t sum) { return (hash ^ xx_round(0, sum)) * XX_1 + XX_4; }

/* Never 0, which stands for a value that nobody knows. */
uint64_t value_digest(const uint8_t *bytes, size_t length) {
    uint64_t hash = XX_SEED + XX_5;
    const uint8_t *at = bytes, *end = bytes + length;
    if (length >= 32) {
        uint64_t one = XX_SEED + XX_1 + XX_2, two = XX_SEED + XX_2, three = XX_SEED, four = XX_SEED - XX_1;
        for (; end - at >= 32; at += 32) {
            one = xx_round(one, load_le64(at)), two = xx_round(two, load_le64(at + 8));
            three = xx_round(three, load_le64(at + 16)), four = xx_round(four, load_le64(at + 24));
        }
        hash = turned(one, 1) + turned(two, 7) + turned(three, 12) + turned(four, 18);
        hash = xx_merge(xx_merge(xx_merge(xx_merge(hash, one), two), three), four);
    }
    hash += length;
    for (; end - at >= 8; at += 8) hash = turned(hash ^ xx_round(0, load_le64(at)), 27) * XX_1 + XX_4;
    if (end - at >= 4) hash = turned(hash ^ load_le32(at) * XX_1, 23) * XX_2 + XX_3, at += 4;
    for (; at < end; at++) hash = turned(hash ^ *at * XX_5, 11) * XX_1;
    hash = (hash ^ hash >> 33) * XX_2;
    hash = (hash ^ hash >> 29) * XX_3;
    hash ^= hash >> 32;
    return hash ? hash : 1;
}
