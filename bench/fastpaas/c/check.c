/* Checks of memory accesses by coarse bounds, as FastPaas makes them: an access has to lie in the packets, or in the module's
 * own data or stack.
 *
 * The compiler puts a call before each access that it cannot prove (the instrumentation of its kernel address sanitizer), and
 * link-time optimization puts these functions in place of the calls. FastPaas keeps the bounds in registers of MPX and knows for
 * each access which of them holds. These compare in software, in the order packets, data, stack.
 *
 * With -DREADS also what memcpy and the like read is checked; loads themselves are by the compiler's options. */
#include <stddef.h>
#include <stdint.h>

#define INLINE __attribute__((always_inline))

/* The first byte of the packets' pool, and its bytes. */
static uintptr_t first, size;

/* The module's image, as the linker laid it out. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

/* Bytes of stack below and above a frame that a module may use. */
#define BELOW (256u << 10)
#define ABOVE 4096u

void nb_bounds(uintptr_t pool, uintptr_t bytes) {
    first = pool;
    size = bytes;
}

static inline INLINE void check(uintptr_t at, uintptr_t bytes) {
    if (__builtin_expect(at - first <= size - bytes, 1)) return;
    uintptr_t image = (uintptr_t)__ehdr_start;
    if (__builtin_expect(at - image <= (uintptr_t)_end - image - bytes, 1)) return;
    if (at - ((uintptr_t)__builtin_frame_address(0) - BELOW) <= BELOW + ABOVE - bytes) return;
    __builtin_trap();
}

#define CHECKS(bytes)                                                              \
    INLINE void nb_check_load##bytes##_noabort(uintptr_t at) { check(at, bytes); } \
    INLINE void nb_check_store##bytes##_noabort(uintptr_t at) { check(at, bytes); }
CHECKS(1)
CHECKS(2)
CHECKS(4)
CHECKS(8)
CHECKS(16)
INLINE void nb_check_loadN_noabort(uintptr_t at, uintptr_t bytes) { check(at, bytes); }
INLINE void nb_check_storeN_noabort(uintptr_t at, uintptr_t bytes) { check(at, bytes); }

INLINE void *nb_check_memcpy(void *to, const void *from, size_t bytes) {
    check((uintptr_t)to, bytes);
#ifdef READS
    check((uintptr_t)from, bytes);
#endif
    return __builtin_memcpy(to, from, bytes);
}
INLINE void *nb_check_memmove(void *to, const void *from, size_t bytes) {
    check((uintptr_t)to, bytes);
#ifdef READS
    check((uintptr_t)from, bytes);
#endif
    return __builtin_memmove(to, from, bytes);
}
INLINE void *nb_check_memset(void *to, int value, size_t bytes) {
    check((uintptr_t)to, bytes);
    return __builtin_memset(to, value, bytes);
}
