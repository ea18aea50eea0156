/* Figure 1's chains in C: functions one behind the other, in one thread or in a thread or process each.
 *
 *   chain one|threads|processes PACKETS ROUTES TUPLES CORES LIBRARY...
 *
 * PACKETS are moved once the chain is set up. ROUTES is the configuration of each function, TUPLES holds 12 bytes for each
 * packet (addresses and ports), CORES is a list such as 1,0. Each LIBRARY is a file of its own with nb_setup and nb_process, so
 * that each function has a table of its own.
 *
 *   one         each core runs the whole chain over its share of the packets (run to completion)
 *   threads     a manager takes free packets, writes them and gives them to the first function; each function is a thread and
 *               gives packets to the next by a ring; the last gives them back to the manager
 *   processes   the same with a process for each function; packets and rings are shared memory
 *
 * The manager and the functions are pinned to the cores in turn. One that finds nothing yields its core. Prints the packets that
 * came through and the time (ns). */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "netbricks.h"

#define BURST 32u
#define PACKETS 4096u
#define ROOM 2112u
#define HEAD 128u
#define FRAME 60u
#define RING 512u
#define MOST 8

/* A ring of packet numbers for one producer and one consumer. Each end keeps the other's place as it last saw it. */
struct ring {
    _Alignas(128) _Atomic uint32_t head;
    uint32_t tail_seen;
    _Alignas(128) _Atomic uint32_t tail;
    uint32_t head_seen;
    _Alignas(128) uint32_t number[PACKETS];
    uint32_t size;
};

/* What all threads and processes share. */
struct shared {
    struct ring ring[MOST + 1];
    _Atomic uint32_t ready, failed;
    _Atomic uint64_t through;
    uint64_t start, end;
    _Alignas(128) uint8_t packets[PACKETS][ROOM];
};

typedef nb_batch *setup_function(const uint8_t *, uint32_t);
typedef void process_function(nb_batch *);

static struct shared *shared;
static uint64_t wanted;
static char *routes;
static uint32_t routes_length;
static const uint8_t (*tuples)[12];
static size_t tuple_count;
static int cores[64], core_count;
static char **libraries;
static int length;

static void fail(const char *what) {
    perror(what);
    if (shared) atomic_store(&shared->failed, 1);
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void pin(int place) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cores[place % core_count], &set);
    if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

static uint32_t pop(struct ring *ring, uint32_t *into, uint32_t most) {
    uint32_t head = atomic_load_explicit(&ring->head, memory_order_relaxed);
    if (ring->tail_seen == head) ring->tail_seen = atomic_load_explicit(&ring->tail, memory_order_acquire);
    uint32_t count = ring->tail_seen - head;
    if (count > most) count = most;
    for (uint32_t i = 0; i < count; i++) into[i] = ring->number[(head + i) & (ring->size - 1)];
    atomic_store_explicit(&ring->head, head + count, memory_order_release);
    return count;
}

static uint32_t push(struct ring *ring, const uint32_t *from, uint32_t count) {
    uint32_t tail = atomic_load_explicit(&ring->tail, memory_order_relaxed);
    if (ring->size - (tail - ring->head_seen) < count)
        ring->head_seen = atomic_load_explicit(&ring->head, memory_order_acquire);
    uint32_t room = ring->size - (tail - ring->head_seen);
    if (count > room) count = room;
    for (uint32_t i = 0; i < count; i++) ring->number[(tail + i) & (ring->size - 1)] = from[i];
    atomic_store_explicit(&ring->tail, tail + count, memory_order_release);
    return count;
}

static void push_all(struct ring *ring, const uint32_t *from, uint32_t count) {
    while (count > 0) {
        uint32_t pushed = push(ring, from, count);
        from += pushed;
        count -= pushed;
        if (count > 0) {
            if (atomic_load(&shared->failed)) exit(1);
            sched_yield();
        }
    }
}

/* Asks for huge pages for the tables of a module, which are in its writable memory and not used yet. */
static int advise(struct dl_phdr_info *info, size_t size, void *library) {
    (void)size;
    if (strcmp(info->dlpi_name, library)) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_W)) continue;
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = info->dlpi_addr + part->p_vaddr, to = from + part->p_memsz;
        from &= ~(page - 1);
        /* As for the tables of the Rust setups, small pages do where the kernel has no others. */
        madvise((void *)from, to - from, MADV_HUGEPAGE);
    }
    return 1;
}

struct function {
    process_function *process;
    nb_batch *batch;
};

static struct function load(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "chain: %s\n", dlerror());
        atomic_store(&shared->failed, 1);
        exit(1);
    }
    dl_iterate_phdr(advise, (void *)library);
    setup_function *setup = (setup_function *)dlsym(handle, "nb_setup");
    struct function function = {(process_function *)dlsym(handle, "nb_process"), 0};
    if (!setup || !function.process) fail("dlsym");
    function.batch = setup((const uint8_t *)routes, routes_length);
    if (!function.batch) fail("nb_setup refuses the routes");
    return function;
}

/* Runs a function over packets. All of them pass: each destination has a route. */
static void run(struct function function, const uint32_t *number, uint32_t count) {
    nb_batch *batch = function.batch;
    batch->count = count;
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *data = shared->packets[number[i]] + HEAD;
        __builtin_prefetch(data);
        batch->p[i] = (nb_packet){data, FRAME, NB_PASS};
    }
    function.process(batch);
    for (uint32_t i = 0; i < count; i++)
        if (batch->p[i].verdict != NB_PASS) fail("a packet without a route");
}

static uint8_t template[FRAME] = {1, 2, 3, 4, 5, 6, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 8, 0, 0x45, 0, 0, FRAME - 14, 0, 0, 0, 0,
                                  255, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, FRAME - 34};

/* Writes packets as they arrive. */
static void receive(const uint32_t *number, uint32_t count, size_t *next) {
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *data = shared->packets[number[i]] + HEAD;
        memcpy(data, template, FRAME);
        memcpy(data + 26, tuples[*next], 12);
        if (++*next == tuple_count) *next = 0;
    }
}

static void wait_for(uint32_t count) {
    while (atomic_load(&shared->ready) < count) {
        if (atomic_load(&shared->failed)) exit(1);
        sched_yield();
    }
}

/* The whole chain on one core, over this core's share of the packets. */
static void complete(int place) {
    struct function function[MOST];
    pin(place);
    for (int i = 0; i < length; i++) function[i] = load(libraries[i]);
    /* The packets of one burst come again in the next: a pool gives back what was used last. */
    uint32_t own = BURST, first = own * (uint32_t)place, at = 0;
    uint64_t left = wanted / (uint64_t)core_count + (place == 0 ? wanted % (uint64_t)core_count : 0), mine = left;
    size_t next = (size_t)place * 100003u % tuple_count;
    atomic_fetch_add(&shared->ready, 1);
    wait_for((uint32_t)core_count);
    if (place == 0) shared->start = now();
    while (left > 0) {
        uint32_t number[BURST], count = left < BURST ? (uint32_t)left : BURST;
        for (uint32_t i = 0; i < count; i++) number[i] = first + (at + i) % own;
        at = (at + count) % own;
        receive(number, count, &next);
        for (int i = 0; i < length; i++) run(function[i], number, count);
        left -= count;
    }
    atomic_fetch_add(&shared->through, mine);
    /* The last core's end counts. */
    if (atomic_load(&shared->through) == wanted) shared->end = now();
}

static void manage(void) {
    pin(0);
    struct ring *free = &shared->ring[length], *first = &shared->ring[0];
    wait_for((uint32_t)length);
    size_t next = 0;
    uint64_t left = wanted;
    shared->start = now();
    while (left > 0) {
        uint32_t number[BURST], count = pop(free, number, left < BURST ? (uint32_t)left : BURST);
        if (count == 0) {
            if (atomic_load(&shared->failed)) exit(1);
            sched_yield();
            continue;
        }
        receive(number, count, &next);
        push_all(first, number, count);
        left -= count;
    }
    while (atomic_load(&shared->through) < wanted && !atomic_load(&shared->failed)) sched_yield();
}

/* One function of the chain, on a core of its own or one that it shares. */
static void work(int place) {
    pin(place + 1);
    struct function function = load(libraries[place]);
    struct ring *in = &shared->ring[place], *out = &shared->ring[place + 1];
    int last = place == length - 1;
    uint64_t left = wanted;
    atomic_fetch_add(&shared->ready, 1);
    while (left > 0) {
        uint32_t number[BURST], count = pop(in, number, BURST);
        if (count == 0) {
            if (atomic_load(&shared->failed)) exit(1);
            sched_yield();
            continue;
        }
        run(function, number, count);
        push_all(out, number, count);
        left -= count;
        if (last && left == 0) {
            shared->end = now();
            atomic_store(&shared->through, wanted);
        }
    }
}

static void *thread(void *place) {
    work((int)(intptr_t)place);
    return 0;
}

static void fork_each(int count, void (*each)(int)) {
    for (int place = 0; place < count; place++) {
        pid_t child = fork();
        if (child < 0) fail("fork");
        if (child == 0) {
            each(place);
            _exit(0);
        }
    }
}

static char *read_file(const char *path, size_t *bytes) {
    int file = open(path, O_RDONLY);
    struct stat about;
    if (file < 0 || fstat(file, &about)) fail(path);
    *bytes = (size_t)about.st_size;
    char *memory = mmap(0, *bytes, PROT_READ, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) fail(path);
    close(file);
    return memory;
}

int main(int count, char **argument) {
    if (count < 7 || count > 6 + MOST) {
        fprintf(stderr, "usage: chain one|threads|processes PACKETS ROUTES TUPLES CORES LIBRARY...\n");
        return 2;
    }
    size_t bytes;
    const char *how = argument[1];
    wanted = strtoull(argument[2], 0, 10);
    routes = read_file(argument[3], &bytes);
    routes_length = (uint32_t)bytes;
    tuples = (const uint8_t(*)[12])read_file(argument[4], &bytes);
    tuple_count = bytes / 12;
    for (char *core = strtok(argument[5], ","); core && core_count < 64; core = strtok(0, ",")) cores[core_count++] = atoi(core);
    libraries = argument + 6;
    length = count - 6;
    if (!wanted || !tuple_count || !core_count) fail("arguments");
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) fail("mmap");
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i <= length; i++) shared->ring[i].size = i == length ? PACKETS : RING;
    if (!strcmp(how, "one")) {
        fork_each(core_count, complete);
    } else {
        for (uint32_t i = 0; i < PACKETS; i++) push(&shared->ring[length], &i, 1);
        pthread_t threads[MOST];
        if (!strcmp(how, "threads")) {
            for (intptr_t i = 0; i < length; i++)
                if (pthread_create(&threads[i], 0, thread, (void *)i)) fail("pthread_create");
        } else if (!strcmp(how, "processes")) {
            fork_each(length, work);
        } else {
            fail(how);
        }
        manage();
        if (!strcmp(how, "threads"))
            for (int i = 0; i < length; i++) pthread_join(threads[i], 0);
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= status;
    if (failed || atomic_load(&shared->failed)) return 1;
    printf("%llu %llu\n", (unsigned long long)atomic_load(&shared->through), (unsigned long long)(shared->end - shared->start));
    return 0;
}
