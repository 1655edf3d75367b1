// Ends the process at its n-th system call that changes a file, for KILL_AT=n in the environment; preloaded.
// write() gets half of its bytes out at that call, as a power failure or a full disk would.
#include <cstdlib>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {
int left = 0;
bool due() {
    if (const char *at = std::getenv("KILL_AT"); at && left == 0) left = std::atoi(at);
    return left > 0 && --left == 0 ? (left = -1, true) : false;
}
template <typename F> F next(const char *name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }
bool counts(int descriptor) {
    struct stat status;
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}
}  // namespace

extern "C" {
ssize_t write(int descriptor, const void *bytes, size_t size) {
    auto real = next<ssize_t (*)(int, const void *, size_t)>("write");
    if (counts(descriptor) && due()) {
        real(descriptor, bytes, size / 2);
        _exit(9);
    }
    return real(descriptor, bytes, size);
}
int fsync(int descriptor) {
    if (due()) _exit(9);
    return next<int (*)(int)>("fsync")(descriptor);
}
int rename(const char *old, const char *now) {
    if (due()) _exit(9);
    return next<int (*)(const char *, const char *)>("rename")(old, now);
}
int unlink(const char *path) {
    if (due()) _exit(9);
    return next<int (*)(const char *)>("unlink")(path);
}
int ftruncate(int descriptor, off_t size) {
    if (due()) _exit(9);
    return next<int (*)(int, off_t)>("ftruncate")(descriptor, size);
}
int ftruncate64(int descriptor, off64_t size) {
    if (due()) _exit(9);
    return next<int (*)(int, off64_t)>("ftruncate64")(descriptor, size);
}
int chmod(const char *path, mode_t mode) {
    if (due()) _exit(9);
    return next<int (*)(const char *, mode_t)>("chmod")(path, mode);
}
}
