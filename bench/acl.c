/* Cost of DPDK's rte_acl on a ClassBench rule set and headers: ns a lookup in batches of 64, the least of the rounds.
 *
 *   acl RULES HEADERS ROUNDS -- EAL options stand before: acl -l 1 -m 2048 --in-memory --no-pci -- RULES HEADERS ROUNDS
 *
 * HEADERS are six numbers of 32 bits each, in the machine's byte order: source, destination, both ports, protocol, TCP flags.
 * bench/classbench.sh makes them. The output is one line: rules, headers that match, ns.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_acl.h>
#include <rte_eal.h>

#define BATCH 64

/* The key as rte_acl reads it, in network byte order. */
struct key {
    uint8_t protocol, unused[3];
    uint32_t source, destination;
    uint16_t source_port, destination_port;
    uint16_t flags, unused2;
} __attribute__((packed));

static struct rte_acl_field_def fields[6] = {
    {.type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 1, .field_index = 0, .input_index = 0, .offset = 0},
    {.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 1, .input_index = 1, .offset = 4},
    {.type = RTE_ACL_FIELD_TYPE_MASK, .size = 4, .field_index = 2, .input_index = 2, .offset = 8},
    {.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 3, .input_index = 3, .offset = 12},
    {.type = RTE_ACL_FIELD_TYPE_RANGE, .size = 2, .field_index = 4, .input_index = 3, .offset = 14},
    {.type = RTE_ACL_FIELD_TYPE_BITMASK, .size = 2, .field_index = 5, .input_index = 4, .offset = 16},
};

RTE_ACL_RULE_DEF(rule, 6);

static void fail(const char *what) {
    fprintf(stderr, "acl: %s\n", what);
    exit(1);
}

static struct rte_acl_ctx *load(const char *path, unsigned *count) {
    struct rte_acl_param parameters = {
        .name = "classbench", .socket_id = 0, .rule_size = RTE_ACL_RULE_SZ(6), .max_rule_num = 1 << 20};
    struct rte_acl_ctx *context = rte_acl_create(&parameters);
    FILE *file = fopen(path, "r");
    if (!context || !file) fail("no context or no rules");
    char line[512];
    while (fgets(line, sizeof line, file)) {
        unsigned s[4], d[4], source_len, destination_len, low, high, low2, high2, protocol, mask, flags, flags_mask;
        int read = sscanf(line, "@%u.%u.%u.%u/%u %u.%u.%u.%u/%u %u : %u %u : %u 0x%x/0x%x 0x%x/0x%x", s, s + 1, s + 2, s + 3,
                          &source_len, d, d + 1, d + 2, d + 3, &destination_len, &low, &high, &low2, &high2, &protocol,
                          &mask, &flags, &flags_mask);
        if (read != 18) continue;
        struct rule one;
        memset(&one, 0, sizeof one);
        one.data.userdata = ++*count;
        one.data.category_mask = 1;
        one.data.priority = RTE_ACL_MAX_PRIORITY - *count;
        one.field[0].value.u8 = protocol;
        one.field[0].mask_range.u8 = mask;
        one.field[1].value.u32 = s[0] << 24 | s[1] << 16 | s[2] << 8 | s[3];
        one.field[1].mask_range.u32 = source_len;
        one.field[2].value.u32 = d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
        one.field[2].mask_range.u32 = destination_len;
        one.field[3].value.u16 = low;
        one.field[3].mask_range.u16 = high;
        one.field[4].value.u16 = low2;
        one.field[4].mask_range.u16 = high2;
        one.field[5].value.u16 = flags;
        one.field[5].mask_range.u16 = flags_mask;
        if (rte_acl_add_rules(context, (struct rte_acl_rule *)&one, 1)) fail("a rule is refused");
    }
    fclose(file);
    struct rte_acl_config config = {.num_categories = 1, .num_fields = 6};
    memcpy(config.defs, fields, sizeof fields);
    if (rte_acl_build(context, &config)) fail("the rules cannot be built");
    return context;
}

int main(int count, char **arguments) {
    int own = rte_eal_init(count, arguments);
    if (own < 0 || count - own < 4) fail("EAL options -- RULES HEADERS ROUNDS");
    arguments += own;
    unsigned rules = 0;
    struct rte_acl_ctx *context = load(arguments[1], &rules);
    FILE *file = fopen(arguments[2], "rb");
    if (!file) fail("no headers");
    size_t room = 1 << 20, headers = 0;
    struct key *keys = calloc(room, sizeof *keys);
    uint32_t header[6];
    while (headers < room && fread(header, sizeof header, 1, file) == 1) {
        keys[headers++] = (struct key){.protocol = header[4],
                                       .source = htonl(header[0]),
                                       .destination = htonl(header[1]),
                                       .source_port = htons(header[2]),
                                       .destination_port = htons(header[3]),
                                       .flags = htons(header[5])};
    }
    fclose(file);
    size_t matched = 0;
    double least = 1e30;
    for (int round = 0; round < atoi(arguments[3]); round++) {
        struct timespec from, to;
        matched = 0;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (size_t at = 0; at < headers; at += BATCH) {
            const uint8_t *batch[BATCH];
            uint32_t found[BATCH];
            size_t len = headers - at < BATCH ? headers - at : BATCH;
            for (size_t nth = 0; nth < len; nth++) batch[nth] = (const uint8_t *)&keys[at + nth];
            if (rte_acl_classify(context, batch, found, len, 1)) fail("classify");
            for (size_t nth = 0; nth < len; nth++) matched += found[nth] != 0;
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        double ns = (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
        if (ns / headers < least) least = ns / headers;
    }
    printf("%u %zu %.1f\n", rules, matched, least);
    return 0;
}
