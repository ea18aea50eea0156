/* A traffic policer: token buckets by IPv4 source address, 65,536 of them, by a hash of the address.
 *
 * Configuration: `rate BYTES burst BYTES`, bytes a second and bytes at once; without it 1,000,000 and 16,000. */
#include "netbricks.h"

NB_MODULE(64, NB_WRITES_NONE)

#define BUCKETS 65536u

static nb_batch batch;
static struct {
    uint64_t time; /* ns */
    uint64_t tokens; /* bytes */
} bucket[BUCKETS];
static uint64_t rate = 1000000, burst = 16000;

/* The number at *at, which moves behind it. */
static uint64_t number(const uint8_t **at, const uint8_t *end) {
    uint64_t value = 0;
    while (*at < end && **at == ' ') ++*at;
    while (*at < end && **at >= '0' && **at <= '9') value = value * 10 + (uint64_t)(*(*at)++ - '0');
    return value;
}

/* Whether the word stands at *at, which then moves behind it. */
static int word(const uint8_t **at, const uint8_t *end, const char *word, uint32_t len) {
    while (*at < end && **at == ' ') ++*at;
    if (end - *at < (int)len) return 0;
    for (uint32_t i = 0; i < len; i++)
        if ((*at)[i] != (uint8_t)word[i]) return 0;
    *at += len;
    return 1;
}

nb_batch *nb_setup(const uint8_t *config, uint32_t len) {
    const uint8_t *end = config + len;
    if (len > 0) {
        if (!word(&config, end, "rate", 4)) return 0;
        rate = number(&config, end);
        if (!word(&config, end, "burst", 5)) return 0;
        burst = number(&config, end);
        if (rate == 0 || burst == 0 || config != end) return 0;
    }
    for (uint32_t i = 0; i < BUCKETS; i++) bucket[i].tokens = burst;
    return &batch;
}

void nb_process(nb_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        nb_packet *p = &b->p[i];
        if (p->len < 34 || p->data[12] != 0x08 || p->data[13] != 0x00) continue;
        uint32_t source;
        __builtin_memcpy(&source, p->data + 26, 4);
        uint32_t place = source * 0x9e3779b1u >> 16;
        uint64_t passed = b->now - bucket[place].time;
        /* A second fills every bucket that is asked to police less than 18 GB/s; more would overflow. */
        uint64_t earned = passed > 1000000000u ? burst : passed * rate / 1000000000u;
        uint64_t tokens = bucket[place].tokens + earned;
        if (tokens > burst) tokens = burst;
        if (earned > 0) bucket[place].time = b->now;
        if (tokens < p->len) {
            p->verdict = NB_DROP_RATE_LIMITED;
            bucket[place].tokens = tokens;
        } else {
            bucket[place].tokens = tokens - p->len;
        }
    }
}
