/*
 * held_clock: the wall clock of a process comes from a file that a test maps too.
 *
 * Preloaded into a real server or a helper process. The file named by HELD_CLOCK_FILE holds two 64-bit
 * integers: [0] microseconds since the epoch at which the clock stands still, 0 when it runs;
 * [1] microseconds added to the true time while it runs. A test stores into its own mapping and the
 * next look at the clock sees it: nothing is cached and nothing allocates, so it is safe under jemalloc,
 * which asks for the time before malloc works.
 *
 * Only the wall clock is held. Monotonic clocks run on: time-outs, event loops and deadlines are real.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *held;

__attribute__((constructor)) static void find_clock(void) {
    const char *path = getenv("HELD_CLOCK_FILE");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *map = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map != MAP_FAILED) held = map;
}

static int is_wall(clockid_t id) { return id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t id, struct timespec *out) {
    int failed = (int)syscall(SYS_clock_gettime, id, out);
    if (failed || !held || !is_wall(id)) return failed;
    int64_t frozen = __atomic_load_n(&held[0], __ATOMIC_SEQ_CST);
    int64_t now_ns = frozen * 1000;
    if (!frozen) {
        int64_t ahead = __atomic_load_n(&held[1], __ATOMIC_SEQ_CST);
        now_ns = (int64_t)out->tv_sec * 1000000000 + out->tv_nsec + ahead * 1000;
    }
    out->tv_sec = now_ns / 1000000000;
    out->tv_nsec = now_ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    if (!failed) {
        out->tv_sec = now.tv_sec;
        out->tv_usec = now.tv_nsec / 1000;
    }
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now)) return (time_t)-1;
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
