/* Longest-prefix match over IPv4 destinations in a table of 2^24 entries and one of 256-entry groups (DIR-24-8-BASIC; Gupta,
 * Lin and McKeown, INFOCOM 1998). Sets the last byte of the Ethernet destination to the next hop, and drops what has none.
 *
 * Configuration: a line `A.B.C.D/LENGTH HOP` for each route, shortest prefixes first; HOP is 1 to 127. The table takes 32 MiB:
 * set `memory = "48 MiB"`. */
#include "netbricks.h"

NB_MODULE(64, NB_WRITES_HEADERS)

#define GROUPS 1024u
#define GROUP 0x8000u

static nb_batch batch;
static uint16_t first[1u << 24];
static uint8_t second[GROUPS][256];
static uint32_t groups;

/* Adds a route; 0 where it does not fit. */
static int add(uint32_t address, uint32_t length, uint8_t hop) {
    if (length <= 24) {
        uint32_t from = address >> 8 & ~((1u << (24 - length)) - 1);
        for (uint32_t i = 0; i < 1u << (24 - length); i++) first[from + i] = hop;
        return 1;
    }
    uint16_t *entry = &first[address >> 8];
    if (!(*entry & GROUP)) {
        if (groups == GROUPS) return 0;
        for (uint32_t i = 0; i < 256; i++) second[groups][i] = (uint8_t)*entry;
        *entry = (uint16_t)(GROUP | groups++);
    }
    uint32_t from = address & 255 & ~((1u << (32 - length)) - 1);
    for (uint32_t i = 0; i < 1u << (32 - length); i++) second[*entry & 0x7fff][from + i] = hop;
    return 1;
}

static int number(const uint8_t **at, const uint8_t *end, uint32_t most, uint32_t *value) {
    const uint8_t *from = *at;
    for (*value = 0; *at < end && **at >= '0' && **at <= '9' && *value <= most; ++*at)
        *value = *value * 10 + (uint32_t)(**at - '0');
    return *at > from && *value <= most;
}

static int sign(const uint8_t **at, const uint8_t *end, uint8_t sign) {
    if (*at == end || **at != sign) return 0;
    ++*at;
    return 1;
}

nb_batch *nb_setup(const uint8_t *config, uint32_t len) {
    const uint8_t *end = config + len;
    uint32_t before = 0;
    while (config < end) {
        uint32_t part, address = 0, length, hop;
        for (int i = 0; i < 4; i++) {
            if (i > 0 && !sign(&config, end, '.')) return 0;
            if (!number(&config, end, 255, &part)) return 0;
            address = address << 8 | part;
        }
        if (!sign(&config, end, '/') || !number(&config, end, 32, &length) || length < before) return 0;
        if (!sign(&config, end, ' ') || !number(&config, end, 127, &hop) || hop == 0) return 0;
        if (config < end && !sign(&config, end, '\n')) return 0;
        if (!add(address, length, (uint8_t)hop)) return 0;
        before = length;
    }
    return &batch;
}

void nb_process(nb_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        nb_packet *p = &b->p[i];
        if (p->len < 34 || p->data[12] != 0x08 || p->data[13] != 0x00) {
            p->verdict = NB_DROP_UNMATCHED;
            continue;
        }
        uint32_t address;
        __builtin_memcpy(&address, p->data + 30, 4);
        address = __builtin_bswap32(address);
        uint16_t hop = first[address >> 8];
        if (hop & GROUP) hop = second[hop & 0x7fff][address & 255];
        if (hop == 0)
            p->verdict = NB_DROP_NO_ROUTE;
        else
            p->data[5] = (uint8_t)hop;
    }
}
