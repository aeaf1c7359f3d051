/*
 * WinPcap's additions, and what libpcap does otherwise or not at all. Each line of the output is a fact that the test knows.
 * argv: the interface to read, the one at the other end of its cable, a file.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pcap.h>

static char errbuf[PCAP_ERRBUF_SIZE];
static pcap_t *far_end;
/* UDP over IPv4 by its numbers; the rest is zeros. */
static u_char frame[1514] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, [23] = 17};

static pcap_t *open_near(const char *device, int timeout_ms) {
    pcap_t *p = pcap_open_live(device, 2000, 1, timeout_ms, errbuf);
    if (!p) printf("%s\n", errbuf), exit(1);
    return p;
}

static void send_many(int count, int len) {
    for (int i = 0; i < count; i++) {
        frame[20] = i;
        if (pcap_sendpacket(far_end, frame, len) != 0) printf("not sent: %s\n", pcap_geterr(far_end));
    }
}

/* The byte of the next packet by which packets of send_many differ. */
static int next_number(pcap_t *p) {
    struct pcap_pkthdr *header;
    const u_char *data;
    int result;
    while ((result = pcap_next_ex(p, &header, &data)) == 0) {}
    return result == 1 ? data[20] : result;
}

static void statistics(const char *device) {
    pcap_t *p = open_near(device, 100);
    struct pcap_pkthdr *header;
    const u_char *data;
    uint64_t counts[2], packets = 0, bytes = 0;
    struct bpf_program program;
    pcap_compile(p, &program, "udp and greater 50", 1, 0);
    printf("filter %d mode %d\n", pcap_setfilter(p, &program), pcap_setmode(p, MODE_STAT));
    pcap_freecode(&program);
    send_many(7, 42), send_many(10, 50), send_many(5, 1000);
    frame[23] = 6, send_many(3, 100), frame[23] = 17;
    send_many(1, 60);
    while (packets < 16) {
        int result = pcap_next_ex(p, &header, &data);
        if (result != 1 || header->caplen != 16) printf("odd record %d %u\n", result, header->caplen);
        memcpy(counts, data, 16);
        packets += counts[0], bytes += counts[1];
    }
    printf("counted %llu packets, %llu bytes\n", (unsigned long long)packets, (unsigned long long)bytes);
    printf("odd mode %d [%s]\n", pcap_setmode(p, 9), pcap_geterr(p));
    printf("mode %d\n", pcap_setmode(p, MODE_CAPT));
    send_many(1, 1200);
    while (pcap_next_ex(p, &header, &data) == 0) {}
    printf("captured %u\n", header->caplen);
    pcap_close(p);
}

static void counts_beside_a_dump(const char *device, char *name) {
    pcap_t *p = open_near(device, 50);
    struct pcap_pkthdr *header;
    const u_char *data;
    uint64_t counts[3], packets = 0, bytes = 0;
    printf("both %d", pcap_setmode(p, MODE_STAT | MODE_DUMP));
    printf(" dump %d\n", pcap_live_dump(p, name, 0, 7));
    send_many(7, 100);
    while (packets < 7 && pcap_next_ex(p, &header, &data) == 1) {
        memcpy(counts, data, 24);
        packets += counts[0], bytes += counts[1];
    }
    printf("counted %llu packets, %llu bytes", (unsigned long long)packets, (unsigned long long)bytes);
    /* The file's header, and seven packets of 100 bytes with their headers. */
    for (int tries = 100; counts[2] != 24 + 7 * 116 && tries > 0; tries--)
        if (pcap_next_ex(p, &header, &data) == 1) memcpy(counts, data, 24);
    printf(" in a record of %u, dumped %llu", header->len, (unsigned long long)counts[2]);
    printf(" ended %d\n", pcap_live_dump_ended(p, 1));
    pcap_t *file = pcap_open_offline(name, errbuf);
    for (packets = 0; pcap_next_ex(file, &header, &data) == 1;) packets += header->len == 100;
    pcap_close(file);
    printf("dumped %llu\n", (unsigned long long)packets);
    pcap_close(p);
}

static long size_of(const char *name) {
    struct stat status;
    return stat(name, &status) == 0 ? (long)status.st_size : -1;
}

static void live_dump(const char *device, char *name) {
    pcap_t *p = open_near(device, 20);
    struct pcap_pkthdr *header;
    const u_char *data;
    printf("dump %d", pcap_live_dump(p, name, 0, 5));
    printf(" ended %d\n", pcap_live_dump_ended(p, 0));
    printf("reading meanwhile %d\n", pcap_next_ex(p, &header, &data));
    send_many(9, 100);
    printf("ended %d\n", pcap_live_dump_ended(p, 1));
    printf("not dumping %d\n", pcap_live_dump_ended(p, 0));
    pcap_t *file = pcap_open_offline(name, errbuf);
    int packets = 0;
    while (pcap_next_ex(file, &header, &data) == 1) packets += data[20] == packets && header->caplen == 100;
    pcap_close(file);
    printf("file %d\n", packets);
    /* By size: a file header, and two packets with their headers. */
    printf("dump %d\n", pcap_live_dump(p, name, 24 + 2 * 116 + 50, 0));
    send_many(9, 100);
    printf("ended %d\n", pcap_live_dump_ended(p, 1));
    printf("bytes %ld\n", size_of(name));
    printf("dump %d\n", pcap_live_dump(p, name, 0, 0));
    send_many(3, 100);
    while (size_of(name) < 24 + 3 * 116) usleep(1000);
    pcap_close(p);
    file = pcap_open_offline(name, errbuf);
    for (packets = 0; pcap_next_ex(file, &header, &data) == 1;) packets++;
    printf("until the close %d\n", packets);
    pcap_close(file);
}

static void queue(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct pcap_pkthdr header = {{1000, 0}, 100, 100};
    u_int room = 3 * (sizeof header + 100) + 10;
    pcap_send_queue *packets = pcap_sendqueue_alloc(room);
    for (int i = 0; i < 4; i++) {
        header.ts.tv_usec = i * 20000;
        frame[20] = 100 + i;
        printf("queued %d\n", pcap_sendqueue_queue(packets, &header, frame));
    }
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    printf("sent %d\n", pcap_sendqueue_transmit(far_end, packets, 1) == packets->len);
    clock_gettime(CLOCK_MONOTONIC, &after);
    for (int i = 0; i < 3; i++) printf("got %d\n", next_number(p));
    /* The last packet goes 40 ms after the first or later, however slow the machine. */
    long nanoseconds = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    printf("gap kept %d\n", nanoseconds >= 40000000);
    pcap_sendqueue_destroy(packets);
    pcap_close(p);
}

static void sampling(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct pcap_samp *sampling = pcap_setsampling(p);
    sampling->method = PCAP_SAMP_1_EVERY_N, sampling->value = 4;
    send_many(20, 100);
    printf("one of four:");
    for (int got = 0; got < 5; got++) printf(" %d", next_number(p));
    printf("\n");
    sampling->method = PCAP_SAMP_FIRST_AFTER_N_MS, sampling->value = 60000;
    send_many(5, 100);
    printf("first after a minute %d\n", next_number(p));
    sampling->method = PCAP_SAMP_NOSAMP;
    pcap_close(p);
}

static void buffers(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct pcap_pkthdr *header;
    const u_char *data;
    int fd = pcap_get_selectable_fd(p), size = 0;
    struct bpf_program program;
    pcap_compile(p, &program, "greater 100", 1, 0);
    pcap_setfilter(p, &program);
    pcap_freecode(&program);
    printf("buffer %d", pcap_setbuff(p, 8 << 20));
    printf(" same descriptor %d\n", fd == pcap_get_selectable_fd(p));
    printf("wake %d wrong %d\n", pcap_setmintocopy(p, 200000), pcap_setbuff(p, 0));
    send_many(3, 99), send_many(4, 200);
    int got = 0;
    while (got < 4)
        if (pcap_next_ex(p, &header, &data) == 1) got += header->caplen == 200 ? 1 : 100;
    printf("got %d\n", got);
    struct pcap_stat *stat = pcap_stats_ex(p, &size);
    printf("stats %d %d %u %u\n", stat != NULL, size == sizeof *stat, stat->ps_recv, stat->ps_drop);
    pcap_close(p);
}

/* Limits the memory of this process to what it has and `more` bytes; no limit at all without. */
static void limit_memory(long more, int is_limited) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) printf("no statm\n");
    fclose(file);
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (is_limited) limit.rlim_cur = pages * sysconf(_SC_PAGESIZE) + more;
    if (setrlimit(RLIMIT_AS, &limit) != 0) perror("setrlimit");
}

/* Before the library ever made a thread: the C library keeps stacks. */
static void no_memory(const char *device, char *name) {
    pcap_t *p = open_near(device, 20);
    limit_memory(1 << 20, 1);
    printf("dump %d", pcap_live_dump(p, name, 0, 0));
    printf(" [%s]\n", pcap_geterr(p));
    limit_memory(0, 0);
    send_many(1, 100);
    printf("still there %d\n", next_number(p));

    /* So little that neither another ring fits nor the former one. */
    const int ring_len = 2 << 20;
    printf("buffer %d\n", pcap_setbuff(p, ring_len));
    limit_memory((64 << 10) - ring_len, 1);
    printf("buffer %d", pcap_setbuff(p, 2 * ring_len));
    printf(" [%s]\n", pcap_geterr(p));
    limit_memory(0, 0);
    for (int i = 0; i < 2; i++) {
        printf("no buffer %d", next_number(p));
        printf(" [%s]\n", pcap_geterr(p));
    }
    printf("buffer %d\n", pcap_setbuff(p, ring_len));
    send_many(2, 100);
    printf("again %d", next_number(p));
    printf(" %d\n", next_number(p));
    pcap_close(p);
}

/* While a child has the ring as well, the kernel keeps it; and so does the handle. */
static void shared_with_a_child(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct bpf_program program;
    pcap_compile(p, &program, "greater 100", 1, 0);
    pcap_setfilter(p, &program);
    pcap_freecode(&program);
    pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    send_many(1, 100);
    printf("before %d\n", next_number(p));
    printf("buffer %d", pcap_setbuff(p, 4 << 20));
    printf(" [%s]\n", pcap_geterr(p));
    send_many(3, 60), send_many(2, 100);
    printf("after %d", next_number(p));
    printf(" %d\n", next_number(p));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    printf("buffer %d\n", pcap_setbuff(p, 4 << 20));
    send_many(3, 60), send_many(2, 100);
    printf("after %d", next_number(p));
    printf(" %d\n", next_number(p));
    pcap_close(p);
}

static int is_flooding, flooded;

static int load(int *number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }

static void *flood(void *unused) {
    (void)unused;
    static const u_char small[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};
    while (load(&is_flooding))
        if (pcap_inject(far_end, small, sizeof small) == sizeof small) __atomic_add_fetch(&flooded, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* More than the ring holds, so that the reader lags behind. */
static void await_flood(void) {
    for (int target = load(&flooded) + 30000; load(&flooded) < target;) usleep(1000);
}

static void *break_in_the_flood(void *p) {
    await_flood();
    pcap_breakloop(p);
    return NULL;
}

static void nothing(u_char *user, const struct pcap_pkthdr *header, const u_char *data) { (void)user, (void)header, (void)data; }

/*
 * A filter that passes nothing, and takes longer for a packet than the other end needs to send one, also as native code, as each step needs the one before:
 * there are always more.
 */
static void nothing_passes(const char *device, char *name) {
    enum { LEN = 20000 };
    static struct bpf_insn insns[LEN];
    insns[0] = (struct bpf_insn){BPF_LD | BPF_W | BPF_LEN, 0, 0, 0};
    for (int i = 1; i < LEN - 3; i++)
        insns[i] = (struct bpf_insn){BPF_ALU | BPF_K | (i % 2 ? BPF_MUL : BPF_ADD), 0, 0, i % 2 ? 1664525 : 1013904223};
    insns[LEN - 3] = (struct bpf_insn){BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 7};
    insns[LEN - 2] = (struct bpf_insn){BPF_RET | BPF_K, 0, 0, 1};
    insns[LEN - 1] = (struct bpf_insn){BPF_RET | BPF_K, 0, 0, 0};
    struct bpf_program program = {LEN, insns};
    pcap_t *p = open_near(device, 20);
    printf("long filter %d\n", pcap_setfilter(p, &program));
    pthread_t flooder, breaker;
    is_flooding = 1;
    pthread_create(&flooder, NULL, flood, NULL);
    pthread_create(&breaker, NULL, break_in_the_flood, p);
    printf("broken loop %d\n", pcap_loop(p, -1, nothing, NULL));
    pthread_join(breaker, NULL);
    struct pcap_pkthdr *header;
    const u_char *data;
    printf("timeout %d\n", pcap_next_ex(p, &header, &data));
    printf("mode %d", pcap_setmode(p, MODE_STAT));
    printf(" record %d\n", pcap_next_ex(p, &header, &data));
    printf("mode %d\n", pcap_setmode(p, MODE_CAPT));
    printf("dump %d\n", pcap_live_dump(p, name, 0, 0));
    await_flood();
    pcap_close(p);
    printf("closed, bytes %ld\n", size_of(name));
    __atomic_store_n(&is_flooding, 0, __ATOMIC_RELAXED);
    pthread_join(flooder, NULL);
}

static void on_alarm(int number) { (void)number; }

static void *interrupt_and_make_room(void *command) {
    char state = 0;
    while (state != 'S') {
        FILE *file = fopen("/proc/self/stat", "r");
        if (!file || fscanf(file, "%*d (%*[^)]) %c", &state) != 1) printf("no stat\n");
        fclose(file);
    }
    kill(getpid(), SIGALRM);
    usleep(20000);
    if (system(command) != 0) printf("%s failed\n", (char *)command);
    return NULL;
}

/* The queue lets next to nothing through until it is taken away. The sender waits, signals or not. */
static void no_room(const char *device) {
    char add[100], del[100];
    snprintf(add, sizeof add, "tc qdisc add dev %s root tbf rate 8kbit burst 2000 limit 10000000", device);
    snprintf(del, sizeof del, "tc qdisc del dev %s root", device);
    pcap_t *p = open_near(device, 20);
    if (system(add) != 0) printf("%s failed\n", add);
    pcap_setnonblock(p, 1, errbuf);
    while (pcap_inject(p, frame, 1514) == 1514) {}
    pcap_setnonblock(p, 0, errbuf);
    /* The signal is for the thread that sends. */
    sigset_t alarm;
    sigemptyset(&alarm), sigaddset(&alarm, SIGALRM);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    pthread_t thread;
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    pthread_create(&thread, NULL, interrupt_and_make_room, del);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    int sent = pcap_inject(p, frame, 1514);
    printf("sent in the end %d [%s]\n", sent, sent < 0 ? pcap_geterr(p) : "");
    pthread_join(thread, NULL);
    pcap_close(p);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    far_end = pcap_open_live(argv[2], 100, 0, 10, errbuf);
    if (!far_end) return printf("%s\n", errbuf), 1;
    no_memory(argv[1], argv[3]);
    statistics(argv[1]);
    counts_beside_a_dump(argv[1], argv[3]);
    live_dump(argv[1], argv[3]);
    queue(argv[1]);
    sampling(argv[1]);
    buffers(argv[1]);
    shared_with_a_child(argv[1]);
    nothing_passes(argv[1], argv[3]);
    no_room(argv[1]);
    pcap_close(far_end);
    return 0;
}
