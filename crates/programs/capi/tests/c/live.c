/*
 * The corners of live capture. A test runs this program in a network namespace on two libraries and compares what it says; nothing else sends there.
 * argv: the interface to read, the interface at the other end of its cable.
 */
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pcap.h>

static char errbuf[PCAP_ERRBUF_SIZE];
static pcap_t *far_end, *current;

static pcap_t *open_near(const char *device, int immediate, int timeout_ms) {
    pcap_t *p = pcap_create(device, errbuf);
    pcap_set_snaplen(p, 100), pcap_set_promisc(p, 1), pcap_set_timeout(p, timeout_ms), pcap_set_immediate_mode(p, immediate);
    int result = pcap_activate(p);
    printf("activate %s: %d [%s]\n", device, result, pcap_geterr(p));
    return p;
}

/* A UDP packet in Ethernet, with a VLAN tag if there is a number. */
static void send_one(int len, int port, int vlan) {
    u_char frame[1500] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    int at = 12;
    if (vlan) frame[at] = 0x81, frame[at + 2] = vlan >> 8, frame[at + 3] = vlan & 255, at += 4;
    frame[at] = 8, at += 2;
    frame[at] = 0x45, frame[at + 2] = (len - at) >> 8, frame[at + 3] = (len - at) & 255, frame[at + 8] = 64, frame[at + 9] = 17;
    frame[at + 22] = port >> 8, frame[at + 23] = port & 255;
    int sent = pcap_inject(far_end, frame, len);
    if (sent != len) printf("sent %d [%s]\n", sent, pcap_geterr(far_end));
}

static int got, last_len;

static void show(u_char *user, const struct pcap_pkthdr *header, const u_char *data) {
    (void)user;
    printf("  %u/%u %02x%02x%02x%02x nanoseconds %d\n", header->caplen, header->len, data[12], data[13], data[14], data[15],
           header->ts.tv_usec >= 1000000);
    got++, last_len = header->len;
}

static void filter(pcap_t *p, const char *text) {
    struct bpf_program program;
    int compiled = pcap_compile(p, &program, text, 1, PCAP_NETMASK_UNKNOWN);
    int result = compiled == 0 ? pcap_setfilter(p, &program) : compiled;
    printf("filter %s: %d\n", text, result);
    if (compiled == 0) pcap_freecode(&program);
}

/* A filter that comes while packets of the same block wait: it sees those with a VLAN tag as the kernel would have shown them. */
static void filter_in_between(const char *device) {
    const char *filters[] = {"udp dst port 2", "vlan 9", "vlan 9 and udp dst port 2", "not vlan"};
    for (int i = 0; i < 4; i++) {
        pcap_t *p = open_near(device, 0, 500);
        send_one(60, 1, 0), send_one(61, 1, 9), send_one(62, 2, 9), send_one(63, 3, 9), send_one(64, 2, 0), send_one(65, 2, 8), send_one(104, 2, 9);
        for (got = 0; got < 2;) pcap_dispatch(p, 1, show, NULL);
        filter(p, filters[i]);
        filter(p, filters[i]);
        /* The end: each filter passes one of these, or both. */
        for (send_one(66, 2, 9), send_one(67, 2, 0); last_len != 66 && last_len != 67;) pcap_dispatch(p, 1, show, NULL);
        last_len = 0;
        pcap_close(p);
    }
}

static void set_up(const char *device, int is_up) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    strncpy(request.ifr_name, device, IFNAMSIZ - 1);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) perror("SIOCGIFFLAGS");
    request.ifr_flags = is_up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) perror("SIOCSIFFLAGS");
    close(fd);
}

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data) { (void)user, (void)header, (void)data; }

/* A nonblocking reader is told once of a link that goes down, and goes on when it is up. */
static void link_down(const char *device) {
    static const u_char frame[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};
    pcap_t *p = open_near(device, 1, 100);
    pcap_setnonblock(p, 1, errbuf);
    struct pollfd entry = {.fd = pcap_get_selectable_fd(p), .events = POLLIN};
    set_up(device, 0);
    printf("down: poll %d", poll(&entry, 1, 5000));
    printf(" dispatch %d", pcap_dispatch(p, -1, count, NULL));
    printf(" poll %d\n", poll(&entry, 1, 100));
    set_up(device, 1);
    while (pcap_dispatch(p, -1, count, NULL) == 0) pcap_inject(far_end, frame, 60), usleep(1000);
    printf("up again\n");
    pcap_close(p);
}

/* A queue that lets next to nothing through fills the socket's room. */
static void no_room(const char *device) {
    static const u_char frame[1514];
    char command[100];
    snprintf(command, sizeof command, "tc qdisc add dev %s root tbf rate 8kbit burst 2000 limit 10000000", device);
    if (system(command) != 0) printf("%s failed\n", command);
    pcap_t *p = open_near(device, 1, 100);
    pcap_setnonblock(p, 1, errbuf);
    int sent;
    while ((sent = pcap_inject(p, frame, 1514)) == 1514) {}
    printf("no room: %d [%s]\n", sent, pcap_geterr(p));
    pcap_close(p);
    snprintf(command, sizeof command, "tc qdisc del dev %s root", device);
    if (system(command) != 0) printf("%s failed\n", command);
}

static void *break_later(void *p) {
    usleep(200000);
    pcap_breakloop(p);
    return NULL;
}

static void on_alarm(int number) {
    (void)number;
    pcap_breakloop(current);
}

static void breaks(pcap_t *p) {
    pthread_t thread;
    pthread_create(&thread, NULL, break_later, p);
    printf("broken by a thread: %d\n", pcap_loop(p, -1, show, NULL));
    pthread_join(thread, NULL);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    current = p;
    ualarm(200000, 0);
    printf("broken by a signal: %d\n", pcap_loop(p, -1, show, NULL));
    send_one(60, 1, 0);
    printf("goes on: %d\n", pcap_loop(p, 1, show, NULL));
}

/* Daemons go on in a child. */
static void in_child(const char *device) {
    pcap_t *p = open_near(device, 1, 100);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int result = 0;
        for (got = 0; got < 2;) result = pcap_dispatch(p, -1, show, NULL);
        printf("in the child: %d\n", result > 0);
        fflush(stdout);
        _exit(7);
    }
    send_one(60, 1, 0), send_one(61, 1, 0);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child ended %d\n", WEXITSTATUS(status));
    pcap_close(p);
}

static void any(void) {
    pcap_t *p = open_near("any", 1, 100);
    int *list, count = pcap_list_datalinks(p, &list);
    printf("any: link type %d, of %d: %d %d\n", pcap_datalink(p), count, list[0], list[1]);
    pcap_free_datalinks(list);
    for (int round = 0; round < 2; round++) {
        int dlt = round ? DLT_LINUX_SLL2 : DLT_LINUX_SLL;
        printf("set %d: %d\n", dlt, pcap_set_datalink(p, dlt));
        filter(p, "udp dst port 7 and inbound");
        send_one(60, 7, 0), send_one(60, 8, 0);
        struct pcap_pkthdr *header;
        const u_char *data;
        int result;
        while ((result = pcap_next_ex(p, &header, &data)) == 0) {}
        printf("next_ex %d: %u/%u", result, header->caplen, header->len);
        for (int i = 0; i < (round ? 20 : 16); i++) /* without the interface's number, and the bytes behind the address */
            if (round ? i < 4 || (i > 7 && i < 18) : i < 12 || i > 13) printf(" %02x", data[i]);
        printf("\n");
    }
    printf("inject %d", pcap_inject(p, "0123456789abcdef", 16));
    printf(" [%s]\n", pcap_geterr(p));
    pcap_close(p);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    far_end = pcap_open_live(argv[2], 100, 0, 10, errbuf);
    if (!far_end) return printf("%s\n", errbuf), 1;
    pcap_t *p = open_near(argv[1], 1, 100);
    printf("link type %d snapshot %d selectable %d fileno %d file %d nonblock %d timeout %d\n", pcap_datalink(p), pcap_snapshot(p),
           pcap_get_selectable_fd(p) >= 0, pcap_fileno(p) == pcap_get_selectable_fd(p), pcap_file(p) != NULL, pcap_getnonblock(p, errbuf),
           pcap_get_required_select_timeout(p) != NULL);
    printf("again %d", pcap_activate(p));
    printf(" [%s]\n", pcap_geterr(p));
    printf("snap length now %d", pcap_set_snaplen(p, 5));
    printf(" [%s]\n", pcap_geterr(p));

    send_one(60, 1, 0), send_one(200, 1, 0), send_one(64, 1, 5), send_one(150, 1, 4095);
    while (got < 4) pcap_dispatch(p, -1, show, NULL);

    filter(p, "udp dst port 2");
    send_one(60, 1, 0), send_one(70, 2, 0), send_one(60, 3, 0), send_one(80, 2, 0);
    while (got < 6) pcap_dispatch(p, -1, show, NULL);
    filter(p, "vlan 9 and udp dst port 2");
    send_one(60, 2, 0), send_one(70, 2, 9), send_one(60, 2, 8);
    while (got < 7) pcap_dispatch(p, -1, show, NULL);
    filter(p, "");

    printf("nonblock %d %d\n", pcap_setnonblock(p, 1, errbuf), pcap_getnonblock(p, errbuf) >= 0);
    printf("nothing: %d\n", pcap_dispatch(p, -1, show, NULL));
    struct pollfd entry = {.fd = pcap_get_selectable_fd(p), .events = POLLIN};
    printf("poll %d\n", poll(&entry, 1, 100));
    send_one(90, 1, 0);
    printf("poll %d\n", poll(&entry, 1, 5000));
    printf("dispatch %d\n", pcap_dispatch(p, -1, show, NULL));
    printf("poll after %d\n", poll(&entry, 1, 100));
    pcap_setnonblock(p, 0, errbuf);

    breaks(p);
    printf("direction out: %d\n", pcap_setdirection(p, PCAP_D_OUT));
    send_one(60, 1, 0);
    u_char own[60] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 8, 0, 0xee};
    got = 0;
    /* A socket does not get what it sends itself. */
    pcap_t *sender = pcap_open_live(argv[1], 100, 0, 10, errbuf);
    printf("sendpacket %d\n", pcap_sendpacket(sender, own, 60));
    pcap_close(sender);
    while (got < 1) pcap_dispatch(p, -1, show, NULL);
    printf("direction in: %d\n", pcap_setdirection(p, PCAP_D_IN));
    printf("direction 7: %d", pcap_setdirection(p, 7));
    printf(" [%s]\n", pcap_geterr(p));
    struct pcap_stat stat;
    printf("stats %d", pcap_stats(p, &stat));
    printf(" received %d dropped %u\n", stat.ps_recv > 0, stat.ps_drop);
    printf("set link type %d", pcap_set_datalink(p, DLT_RAW));
    printf(" [%s]\n", pcap_geterr(p));
    pcap_close(p);

    p = pcap_create(argv[1], errbuf);
    printf("precision %d\n", pcap_set_tstamp_precision(p, PCAP_TSTAMP_PRECISION_NANO));
    pcap_set_immediate_mode(p, 1);
    printf("activate %d\n", pcap_activate(p));
    send_one(60, 1, 0);
    struct pcap_pkthdr *header;
    const u_char *data;
    int result, nanoseconds = 0;
    for (int i = 0; i < 20; i++) {
        while ((result = pcap_next_ex(p, &header, &data)) == 0) {}
        nanoseconds |= header->ts.tv_usec >= 1000000;
        send_one(60, 1, 0);
    }
    printf("next_ex %d, nanoseconds %d, precision %d\n", result, nanoseconds, pcap_get_tstamp_precision(p));
    pcap_close(p);
    any();
    in_child(argv[1]);
    filter_in_between(argv[1]);
    no_room(argv[1]);
    link_down(argv[1]);
    p = pcap_create(argv[1], errbuf);
    printf("rfmon %d", pcap_can_set_rfmon(p));
    pcap_set_rfmon(p, 1);
    printf(" %d\n", pcap_activate(p));
    pcap_close(p);
    pcap_close(far_end);
    return 0;
}
