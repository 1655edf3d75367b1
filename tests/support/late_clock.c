/* Preloaded: a clock that is seven minutes late, as on a node without NTP. Time that only runs is as it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int status = real(clock, now);
    if (!status && clock == CLOCK_REALTIME)
        now->tv_sec -= 420;
    return status;
}
