/*
 * netbricks.h: the interface of network functions that NetBricks runs in a sandbox (version 1).
 *
 * A module is one WebAssembly file, for example of this C code:
 *
 *     #include "netbricks.h"
 *     NB_MODULE(64, NB_WRITES_HEADERS)
 *     static nb_batch batch;
 *     nb_batch *nb_setup(const uint8_t *config, uint32_t len) { return &batch; }
 *     void nb_process(nb_batch *b) {
 *         for (uint32_t i = 0; i < b->count; i++)
 *             if (b->p[i].len < 14) b->p[i].verdict = NB_DROP_MALFORMED;
 *     }
 *
 * The Makefile beside the examples shows how to compile it. `netbricks sandbox check FILE.wasm` says whether a module would
 * be taken, and why not.
 *
 * The host calls nb_setup once for each instance, then nb_process for each batch of packets, always on one thread. A module
 * reaches its own memory and the functions below, and nothing else. All numbers are little-endian; packets are as on the wire.
 */
#ifndef NETBRICKS_H
#define NETBRICKS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. The host refuses modules of another version. */
#define NB_ABI 1

/* Packets of a batch at most. */
#define NB_BATCH 256

/* A packet, as long as nb_process runs. */
typedef struct {
    /* The first bytes of the frame, from the Ethernet header on, in the module's memory. The module sees min(len, nb_reads())
     * of them, or as many as nb_pull has answered; where the frame has fewer than nb_reads(), zeros follow. The host reads
     * this field never: a module that changes it changes nothing but its own view. */
    uint8_t *data;
    /* Bytes of the whole frame, without its checksum. Written by the host, and never read by it: see nb_resize. */
    uint32_t len;
    /* What becomes of the packet: NB_PASS when nb_process is called. The host reads it when nb_process has returned. A number
     * that is no verdict counts as a trap: the whole batch is dropped. */
    uint32_t verdict;
} nb_packet;

/* A batch of packets. The module provides the memory, and nb_setup returns its address. */
typedef struct {
    /* The time (ns): of the packets' arrival where a capture is replayed, else of the clock since 1970. It never goes back,
     * and stands still while nb_process runs. */
    uint64_t now;
    /* Packets in p, 1 to NB_BATCH. Written by the host, and never read by it. */
    uint32_t count;
    /* NB_FLAG_…, added together. */
    uint32_t flags;
    /* The packets, in the order of arrival. Those beyond count are undefined. */
    nb_packet p[NB_BATCH];
} nb_batch;

/* Flag: frames lie in the module's memory as a whole (mode = "mapped"). nb_pull then copies nothing. */
#define NB_FLAG_MAPPED 1u

/* --- Verdicts ------------------------------------------------------------------------------------------------------- */

/* The packet goes on to the next function. */
#define NB_PASS 0u
/* The packet goes back to where it came from, by the way out `reply`. */
#define NB_REPLY 1u
/* The packet leaves by this way out: 0 is the next function, others are those of the setting `outputs`. */
#define NB_OUTPUT(number) (0x100u + (number))

/* The packet is dropped, and counted for this reason. */
#define NB_DROP 0x200u               /* denied: the module's policy */
#define NB_DROP_DENIED 0x200u        /* denied */
#define NB_DROP_MALFORMED 0x201u     /* malformed */
#define NB_DROP_UNMATCHED 0x202u     /* unmatched: it lacks a header that the module needs */
#define NB_DROP_BAD_CHECKSUM 0x203u  /* bad-checksum */
#define NB_DROP_TTL_EXPIRED 0x204u   /* ttl-expired */
#define NB_DROP_RATE_LIMITED 0x205u  /* rate-limited */
#define NB_DROP_NO_ROUTE 0x206u      /* no-route */
#define NB_DROP_TABLE_FULL 0x207u    /* table-full */
#define NB_DROP_TOO_BIG 0x208u       /* too-big */
#define NB_DROP_REJECTED 0x209u      /* rejected */
#define NB_DROP_INVALID_STATE 0x20au /* invalid-state */
#define NB_DROP_NO_MAPPING 0x20bu    /* no-mapping */
#define NB_DROP_NO_BACKEND 0x20cu    /* no-backend */
#define NB_CONSUMED 0x20du           /* local-delivery: its work is done, which is no loss */

/* --- Functions of the module ---------------------------------------------------------------------------------------- */

#define NB_EXPORT(name) __attribute__((export_name(#name))) name

/* What the module may change. */
#define NB_WRITES_NONE 0u    /* nothing: no bytes are copied out, and lengths stay */
#define NB_WRITES_HEADERS 1u /* the first nb_reads() bytes of each frame, and lengths */
#define NB_WRITES_ALL 2u     /* all bytes that it sees, and lengths */

/* Defines the three functions by which the host learns what a module needs, each without parameters:
 *   nb_abi     the version of the interface for which it was compiled: NB_ABI;
 *   nb_reads   bytes at the front of each frame that the module wants to see at once: 64 cost least, and more costs a copy
 *              of so many bytes for each packet;
 *   nb_writes  one of NB_WRITES_…; with NB_WRITES_NONE the copy back is saved. */
#define NB_MODULE(reads, writes)                                 \
    uint32_t NB_EXPORT(nb_abi)(void) { return NB_ABI; }          \
    uint32_t NB_EXPORT(nb_reads)(void) { return (reads); }       \
    uint32_t NB_EXPORT(nb_writes)(void) { return (writes); }

/* Prepares an instance. The setting `config` or `config_file` has given the host `len` bytes, which lie at `config` as long as
 * the instance runs, without a terminating zero. Returns the address of the batch, in memory of the module, or a null pointer
 * to refuse the configuration: the function then cannot be installed. A worker has an instance of its own, and after a fault
 * a new one begins here again. It must end within the setting `setup_time`. */
nb_batch *NB_EXPORT(nb_setup)(const uint8_t *config, uint32_t len);

/* Works on a batch: reads and writes frames, and sets verdicts. It must end within the setting `slice`. */
void NB_EXPORT(nb_process)(nb_batch *batch);

/* --- Functions of the host ------------------------------------------------------------------------------------------ */

#define NB_IMPORT(name) __attribute__((import_module("env"), import_name(#name))) name

/* What host calls answer where they refuse. */
#define NB_NO_PACKET (-1)  /* the batch has no packet of this number */
#define NB_NO_ROOM (-2)    /* the frame has no room, or not so many bytes */
#define NB_READ_ONLY (-3)  /* the module has declared NB_WRITES_NONE */
#define NB_NO_COUNTER (-4) /* the module has 64 counters already, or the name is none */

/* Shows the module at least the first `bytes` bytes of packet p[packet], or all of them where it has fewer. Sets `data` to
 * their place. Returns how many bytes the module sees, or NB_NO_PACKET. Bytes that the module has written stay. */
int32_t NB_IMPORT(nb_pull)(uint32_t packet, uint32_t bytes);

/* Adds `bytes` zero bytes before the packet's first, or takes so many off the front where `bytes` is below 0. Sets `data` and
 * `len`. Returns 0, or NB_NO_PACKET, NB_NO_ROOM or NB_READ_ONLY: then nothing has changed. */
int32_t NB_IMPORT(nb_push_front)(uint32_t packet, int32_t bytes);

/* Makes the packet `len` bytes long: cuts its end, or adds zero bytes there, and then shows the module all of it. Sets `data`
 * and `len`. Returns as nb_push_front. */
int32_t NB_IMPORT(nb_resize)(uint32_t packet, uint32_t len);

/* Adds `add` to the counter of this name, which has `len` of the characters a-z, A-Z, 0-9, `_`, `-` and `.`, 32 at most. A
 * counter begins at 0 when it is first named, and outlives the instance. Reports show it. Returns 0 or NB_NO_COUNTER. */
int32_t NB_IMPORT(nb_count)(const char *name, uint32_t len, uint64_t add);

/* Returns a random number. The sequence follows from the run's seed, the function's name and the worker: a replay gives the same
 * numbers. Nothing leads from them back to the seed. */
uint64_t NB_IMPORT(nb_random)(void);

/* Tells the operator a line of up to 256 bytes of UTF-8. Ten lines a second are kept; others are counted only. */
void NB_IMPORT(nb_log)(const char *text, uint32_t len);

#ifdef __cplusplus
}
#endif

#endif
