/* The C side of `netbricks bench array-N`: N cells of a 512 KiB array are updated for each packet, as the source port says.
 *
 * Its packets are as in the other benchmarks: 4,096 buffers of 2 KiB, frames of 64 bytes, bursts of 32. A tuple of a trace of
 * 655,360 packets over 65,536 flows is written into each frame as it arrives. Needs no library.
 *
 *   cc -O3 -march=native -o array array.c && ./array 1 8 64
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define BURST 32
#define PACKETS 4096
#define FLOWS 65536
#define TRACE (FLOWS * 10)
#define ROOM 2048
#define HEAD 128
#define CELLS 65536

/* What a driver hands over for each packet: a line of its own, as an mbuf of DPDK. */
struct packet {
    uint8_t *data;
    uint32_t length;
} __attribute__((aligned(128)));
struct headers {
    uint8_t destination[6], source[6];
    uint16_t ether_type;
    uint8_t version_ihl, tos;
    uint16_t total_length, identification, fragment;
    uint8_t ttl, protocol;
    uint16_t checksum;
    uint32_t from, to;
    uint16_t from_port, to_port, udp_length, udp_checksum;
} __attribute__((packed));
struct tuple {
    uint32_t from, to;
    uint16_t from_port, to_port;
} __attribute__((packed));

static uint64_t state = 88172645463325252ULL;
static uint64_t random_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 2685821657736338717ULL;
}
static void *huge(size_t bytes) {
    size_t unit = 2u << 20;
    bytes = (bytes + unit - 1) / unit * unit;
    void *memory = NULL;
    if (posix_memalign(&memory, unit, bytes)) abort();
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 0, bytes);
    return memory;
}

static struct packet *packets;
static struct tuple *flows, *trace;
static uint64_t *cells;
static uint64_t sent;

static void reset(void) {
    for (unsigned i = 0; i < PACKETS; i++) {
        struct headers *h = (struct headers *)packets[i].data;
        memset(h, 0, 64);
        h->ether_type = __builtin_bswap16(0x0800);
        h->version_ihl = 0x45;
        h->total_length = __builtin_bswap16(50);
        h->ttl = 255;
        h->protocol = 17;
        h->udp_length = __builtin_bswap16(30);
        memcpy(&h->from, &flows[i], sizeof flows[i]);
    }
}

/* The function. It checks what ours checks: the link, the IP header's version and lengths, and the protocol. */
static __attribute__((noinline)) unsigned array_access(struct packet **burst, unsigned count, unsigned accesses) {
    for (unsigned i = 0; i < count; i++) {
        struct packet *p = burst[i];
        struct headers *h = (struct headers *)p->data;
        unsigned total = __builtin_bswap16(h->total_length);
        if (__builtin_expect(p->length < 42 || h->ether_type != __builtin_bswap16(0x0800) || h->version_ihl != 0x45
                || total > p->length - 14 || total < 28 || h->fragment & __builtin_bswap16(0x3fff) || h->protocol != 17, 0))
            continue;
        uint16_t cell = __builtin_bswap16(h->from_port);
        for (unsigned k = 0; k < accesses; k++) {
            cell = (uint16_t)(cell * 25173u + 13849u);
            cells[cell]++;
        }
    }
    return count;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
static double run(unsigned accesses, double least, uint64_t *packets_run) {
    double took = 0;
    uint64_t done = 0;
    while (took < least) {
        reset();
        unsigned place = 0, at = 0;
        double start = seconds();
        for (unsigned c = 0; c < TRACE; c += BURST) {
            struct packet *burst[BURST];
            for (unsigned i = 0; i < BURST; i++) {
                burst[i] = &packets[place + i];
                memcpy(&((struct headers *)burst[i]->data)->from, &trace[at + i], 12);
            }
            sent += array_access(burst, BURST, accesses);
            place = place + BURST == PACKETS ? 0 : place + BURST;
            at += BURST;
        }
        took += seconds() - start;
        done += TRACE;
    }
    *packets_run += done;
    return took / done * 1e9;
}
static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int count, char **arguments) {
    uint8_t *frames = huge((size_t)PACKETS * ROOM);
    packets = huge(PACKETS * sizeof *packets);
    flows = huge(FLOWS * sizeof *flows);
    trace = huge(TRACE * sizeof *trace);
    cells = huge(CELLS * sizeof *cells);
    for (unsigned i = 0; i < PACKETS; i++) packets[i] = (struct packet){frames + (size_t)i * ROOM + HEAD, 64};
    for (unsigned i = 0; i < FLOWS; i++) {
        flows[i].from = __builtin_bswap32(0x0a000000 | (random_number() & 0xffffff));
        flows[i].to = (uint32_t)random_number();
        flows[i].from_port = random_number();
        flows[i].to_port = random_number();
    }
    for (unsigned i = 0; i < TRACE; i++) trace[i] = flows[random_number() % FLOWS];
    for (int a = 1; a < count; a++) {
        unsigned accesses = atoi(arguments[a]);
        uint64_t packets_run = 0, before = 0, after = 0;
        for (unsigned i = 0; i < CELLS; i++) before += cells[i];
        run(accesses, 0.05, &packets_run);
        double times[5];
        for (int i = 0; i < 5; i++) times[i] = run(accesses, 0.25, &packets_run);
        qsort(times, 5, sizeof *times, ascending);
        for (unsigned i = 0; i < CELLS; i++) after += cells[i];
        if (after - before != packets_run * accesses) return fprintf(stderr, "accesses are missing\n"), 1;
        printf("array-%u %.3f\n", accesses, times[2]);
    }
    return 0;
}
