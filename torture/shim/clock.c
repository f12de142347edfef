// A wall clock that jumps by hours and by a year, forwards and back, every 50 ms: preloaded into a rank (LD_PRELOAD) to see
// that nothing depends on it. The monotonic clocks stay what they are.
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t jump(void) {
    static const time_t seconds[] = {0, 3600, -7200, 31536000, -60, 5, -31536000};
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return seconds[(now.tv_sec * 20 + now.tv_nsec / 50000000) % (sizeof seconds / sizeof *seconds)];
}

int clock_gettime(clockid_t clock, struct timespec* time) {
    const long status = syscall(SYS_clock_gettime, clock, time);
    if (status == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += jump();
    return (int)status;
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
    (void)zone;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t* result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
