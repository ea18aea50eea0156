/* A router's work on the IP header: decrements the time to live or hop limit, and drops what has none left. */
#include "netbricks.h"

NB_MODULE(64, NB_WRITES_HEADERS)

static nb_batch batch;

nb_batch *nb_setup(const uint8_t *config, uint32_t len) {
    (void)config, (void)len;
    return &batch;
}

/* The checksum after the time to live, the upper byte of its word, went down by one (RFC 1624, equation 3). */
static void decrement(uint8_t *ip) {
    uint32_t sum = (uint32_t)(ip[10] << 8 | ip[11]) + 0x100;
    sum += sum >> 16;
    ip[8]--;
    ip[10] = (uint8_t)(sum >> 8);
    ip[11] = (uint8_t)sum;
}

void nb_process(nb_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        nb_packet *p = &b->p[i];
        uint8_t *ip = p->data + 14;
        if (p->len >= 34 && p->data[12] == 0x08 && p->data[13] == 0x00 && ip[0] >> 4 == 4) {
            if (ip[8] <= 1)
                p->verdict = NB_DROP_TTL_EXPIRED;
            else
                decrement(ip);
        } else if (p->len >= 54 && p->data[12] == 0x86 && p->data[13] == 0xdd && ip[0] >> 4 == 6) {
            if (ip[7] <= 1)
                p->verdict = NB_DROP_TTL_EXPIRED;
            else
                ip[7]--;
        }
    }
}
