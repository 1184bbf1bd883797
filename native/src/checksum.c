/* CRC-32C of record batches, and the hashes of Kafka's partitioners. */
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
