/* Stands between a program and the disk (LD_PRELOAD): keeps a log of all that changes files below a folder, in order, or has
 * the disk fail.
 *
 *   TAPLINE_DISK_ROOT   the folder
 *   TAPLINE_DISK_LOG    the log: records of docs in disk.rs
 *   TAPLINE_DISK_FAIL   SEED:SHARE: of a thousand calls SHARE fail, by chance, as long as the file TAPLINE_DISK_WHEN exists
 *   TAPLINE_DISK_STALL  a file: as long as it exists, writes wait
 *
 * io_uring is refused, so that every write is a call that is seen here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 1, LENGTH, CREATE, RENAME, REMOVE, FOLDER, SYNC, SYNC_FOLDER };

struct record {
    uint32_t magic, kind;
    uint64_t file, offset, len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[4096];
static int log_fd = -1;
static uint64_t share, state;
static const char *when, *stall;


static long kernel(long number, long a, long b, long c, long d, long e, long f) {
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) { errno = -result; return -1; }
    return result;
#else
    return syscall(number, a, b, c, d, e, f);
#endif
}

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("TAPLINE_DISK_ROOT"), *path = getenv("TAPLINE_DISK_LOG"), *fail = getenv("TAPLINE_DISK_FAIL");
    if (folder) snprintf(root, sizeof root, "%s", folder);
    if (path) log_fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fail) sscanf(fail, "%lu:%lu", &state, &share);
    when = getenv("TAPLINE_DISK_WHEN");
    stall = getenv("TAPLINE_DISK_STALL");
}

static int is_below(const char *path) {
    size_t len = strlen(root);
    return len && strncmp(path, root, len) == 0;
}

/* The path without a descriptor's name: root reaches directories of a store by /proc/self/fd/N. */
static const char *named(const char *path, char *buffer, size_t room) {
    static const char descriptors[] = "/proc/self/fd/";
    if (strncmp(path, descriptors, sizeof descriptors - 1) != 0) return path;
    char link[64];
    const char *rest = strchr(path + sizeof descriptors - 1, '/');
    if (!rest || (size_t)(rest - path) >= sizeof link) return path;
    memcpy(link, path, rest - path);
    link[rest - path] = 0;
    ssize_t len = readlink(link, buffer, room - 1);
    if (len < 0) return path;
    while (*rest == '/') rest++;
    snprintf(buffer + len, room - len, "/%s", rest);
    return buffer;
}

static int is_watched(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return is_below(path);
}

static uint64_t inode(int fd) {
    struct stat about;
    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

static void all(const void *bytes, size_t len) {
    for (size_t done = 0; done < len;) {
        ssize_t count = syscall(SYS_write, log_fd, (const char *)bytes + done, len - done);
        if (count <= 0) abort();
        done += count;
    }
}

static void note(uint32_t kind, uint64_t file, uint64_t offset, const void *bytes, uint64_t len) {
    struct record record = {0x4b534944, kind, file, offset, len};
    if (log_fd < 0) return;
    all(&record, sizeof record);
    if (bytes) all(bytes, len);
}

/* Chance: SplitMix64. */
static uint64_t chance(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static int fails(void) {
    if (!share || (when && syscall(SYS_faccessat, AT_FDCWD, when, F_OK) != 0)) return 0;
    if (chance() % 1000 >= share) return 0;
    errno = chance() % 3 ? EIO : ENOSPC;
    return 1;
}

static ssize_t put(int fd, const void *bytes, size_t len, off_t offset) {
    return syscall(SYS_pwrite64, fd, bytes, len, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t len, off_t offset) {
    if (!is_watched(fd)) return put(fd, bytes, len, offset);
    while (stall && syscall(SYS_faccessat, AT_FDCWD, stall, F_OK) == 0) usleep(1000);
    pthread_mutex_lock(&lock);
    ssize_t done;
    if (fails()) {
        int error = errno;
        uint64_t how = chance() % 4;
        size_t part = how == 0 ? 0 : chance() % (len + 1);
        done = part ? put(fd, bytes, part, offset) : 0;
        /* Half of what is not written whole is a short write, which is no error. */
        if (how < 3 || done == 0) done = -1;
        errno = error;
    } else {
        done = put(fd, bytes, len, offset);
    }
    int error = errno;
    if (done > 0) note(WRITE, inode(fd), offset, bytes, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) { return pwrite64(fd, bytes, len, offset); }

static off_t place(int fd) {
    int flags = fcntl(fd, F_GETFL);
    struct stat about;
    if (flags & O_APPEND) return fstat(fd, &about) == 0 ? about.st_size : 0;
    return lseek(fd, 0, SEEK_CUR);
}

ssize_t write(int fd, const void *bytes, size_t len) {
    if (!is_watched(fd)) return syscall(SYS_write, fd, bytes, len);
    pthread_mutex_lock(&lock);
    off_t at = place(fd);
    ssize_t done = fails() ? -1 : syscall(SYS_write, fd, bytes, len);
    int error = errno;
    if (done > 0) note(WRITE, inode(fd), at, bytes, done);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off_t offset) {
    ssize_t sum = 0;
    for (int at = 0; at < count; at++) {
        ssize_t done = pwrite64(fd, parts[at].iov_base, parts[at].iov_len, offset + sum);
        if (done < 0) return sum ? sum : -1;
        sum += done;
        if ((size_t)done < parts[at].iov_len) break;
    }
    return sum;
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return pwritev64(fd, parts, count, offset); }

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!is_watched(fd)) return syscall(SYS_writev, fd, parts, count);
    ssize_t sum = 0;
    for (int at = 0; at < count; at++) {
        ssize_t done = write(fd, parts[at].iov_base, parts[at].iov_len);
        if (done < 0) return sum ? sum : -1;
        sum += done;
        if ((size_t)done < parts[at].iov_len) break;
    }
    return sum;
}

static int keep(int fd, int call) {
    if (!is_watched(fd)) return syscall(call, fd);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : syscall(call, fd), error = errno;
    struct stat about;
    if (done == 0 && fstat(fd, &about) == 0) note(S_ISDIR(about.st_mode) ? SYNC_FOLDER : SYNC, about.st_ino, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int fsync(int fd) { return keep(fd, SYS_fsync); }
int fdatasync(int fd) { return keep(fd, SYS_fdatasync); }

static int length(int fd, long done) {
    int error = errno;
    struct stat about;
    if (done == 0 && fstat(fd, &about) == 0) note(LENGTH, about.st_ino, about.st_size, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
int ftruncate64(int fd, off_t len) {
    if (!is_watched(fd)) return syscall(SYS_ftruncate, fd, len);
    pthread_mutex_lock(&lock);
    return length(fd, fails() ? -1 : syscall(SYS_ftruncate, fd, len));
}
int ftruncate(int fd, off_t len) { return ftruncate64(fd, len); }
int fallocate64(int fd, int mode, off_t offset, off_t len) {
    if (!is_watched(fd)) return syscall(SYS_fallocate, fd, mode, offset, len);
    pthread_mutex_lock(&lock);
    return length(fd, fails() ? -1 : syscall(SYS_fallocate, fd, mode, offset, len));
}
int fallocate(int fd, int mode, off_t offset, off_t len) { return fallocate64(fd, mode, offset, len); }
int posix_fallocate64(int fd, off_t offset, off_t len) { return fallocate64(fd, 0, offset, len) == 0 ? 0 : errno; }
int posix_fallocate(int fd, off_t offset, off_t len) { return posix_fallocate64(fd, offset, len); }

static uint64_t inode_of(const char *path) {
    struct stat about;
    return lstat(path, &about) == 0 ? about.st_ino : 0;
}

static int noted_rename(const char *from, const char *to, unsigned flags) {
    char names[2][4200];
    from = named(from, names[0], sizeof names[0]);
    to = named(to, names[1], sizeof names[1]);
    if (!is_below(to)) return kernel(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, flags, 0);
    pthread_mutex_lock(&lock);
    uint64_t file = inode_of(from);
    int done = fails() ? -1 : kernel(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, flags, 0), error = errno;
    char both[8500];
    int len = snprintf(both, sizeof both, "%s%c%s", from, 0, to);
    if (done == 0) note(RENAME, file, 0, both, len);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int rename(const char *from, const char *to) { return noted_rename(from, to, 0); }

int unlink(const char *path) {
    char name[4200];
    path = named(path, name, sizeof name);
    if (!is_below(path)) return syscall(SYS_unlink, path);
    pthread_mutex_lock(&lock);
    uint64_t file = inode_of(path);
    int done = file && fails() ? -1 : syscall(SYS_unlink, path), error = errno;
    if (done == 0) note(REMOVE, file, 0, path, strlen(path));
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

int mkdir(const char *path, mode_t mode) {
    if (!is_below(path)) return syscall(SYS_mkdir, path, mode);
    pthread_mutex_lock(&lock);
    int done = fails() ? -1 : syscall(SYS_mkdir, path, mode), error = errno;
    if (done == 0) note(FOLDER, inode_of(path), 0, path, strlen(path));
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

static int open_at(int folder, const char *path, int flags, mode_t mode) {
    char name[4200];
    path = named(path, name, sizeof name);
    if (!is_below(path) || !(flags & (O_CREAT | O_TRUNC))) return syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    uint64_t before = inode_of(path);
    int fd = fails() ? -1 : syscall(SYS_openat, folder, path, flags, mode), error = errno;
    if (fd >= 0 && !before) note(CREATE, inode(fd), 0, path, strlen(path));
    if (fd >= 0 && before && flags & O_TRUNC) note(LENGTH, before, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}
#define MODE mode_t mode = 0; if (flags & (O_CREAT | __O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
int open(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE return open_at(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE return open_at(folder, path, flags, mode); }

#ifdef __x86_64__
long syscall(long number, ...) {
    va_list list;
    va_start(list, number);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long), d = va_arg(list, long),
         e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    if (number == SYS_io_uring_setup) { errno = ENOSYS; return -1; }
    if (number == SYS_renameat2 && (int)a == AT_FDCWD && (int)c == AT_FDCWD)
        return noted_rename((const char *)b, (const char *)d, e);
    return kernel(number, a, b, c, d, e, f);
}
#endif
