/* Swaps the Ethernet addresses of each frame. */
#include "netbricks.h"

NB_MODULE(64, NB_WRITES_HEADERS)

static nb_batch batch;

nb_batch *nb_setup(const uint8_t *config, uint32_t len) {
    (void)config, (void)len;
    return &batch;
}

void nb_process(nb_batch *b) {
    for (uint32_t i = 0; i < b->count; i++) {
        if (b->p[i].len < 14) {
            b->p[i].verdict = NB_DROP_MALFORMED;
            continue;
        }
        uint8_t *data = b->p[i].data, other[6];
        __builtin_memcpy(other, data, 6);
        __builtin_memcpy(data, data + 6, 6);
        __builtin_memcpy(data + 6, other, 6);
    }
}
