/* Takes its time over each batch: counts down from the number in its configuration, or for ever where there is none. */
#include "netbricks.h"

NB_MODULE(64, NB_WRITES_NONE)

static nb_batch batch;
static uint64_t turns;

nb_batch *nb_setup(const uint8_t *config, uint32_t len) {
    for (uint32_t i = 0; i < len; i++) {
        if (config[i] < '0' || config[i] > '9') return 0;
        turns = turns * 10 + (uint64_t)(config[i] - '0');
    }
    return &batch;
}

void nb_process(nb_batch *b) {
    (void)b;
    for (volatile uint64_t turn = 0; turns == 0 || turn < turns; turn++) {
    }
}
