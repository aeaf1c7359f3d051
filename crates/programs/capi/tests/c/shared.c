/*
 * A capture of a daemon, in a program that waits by poll(2). argv: its device name, the interface that the daemon's is connected to, the daemon's process.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>

#include <pcap.h>

static char errbuf[PCAP_ERRBUF_SIZE];
static int got;

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data) {
    (void)user, (void)header, (void)data;
    got++;
}

static void send_many(pcap_t *far_end, int number) {
    static const u_char frame[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};
    while (number-- > 0)
        if (pcap_inject(far_end, frame, sizeof frame) != sizeof frame) printf("not sent: %s\n", pcap_geterr(far_end));
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    pcap_t *p = pcap_open_live(argv[1], 100, 0, 10, errbuf), *far_end = pcap_open_live(argv[2], 100, 0, 10, errbuf);
    if (!p || !far_end) return printf("%s\n", errbuf), 1;
    pcap_setnonblock(p, 1, errbuf);
    struct pollfd entry = {.fd = pcap_get_selectable_fd(p), .events = POLLIN};
    printf("nothing yet: poll %d\n", poll(&entry, 1, 50));
    for (int round = 0; round < 3; round++) {
        send_many(far_end, 5);
        for (got = 0; got < 5;) poll(&entry, 1, -1), pcap_dispatch(p, 1, count, NULL);
        /* One packet a call: the program has not asked for more than there is. */
        printf("got %d: poll %d\n", got, poll(&entry, 1, 50));
    }
    send_many(far_end, 5);
    poll(&entry, 1, -1);
    kill(atoi(argv[3]), SIGKILL);
    for (got = 0; pcap_dispatch(p, 1, count, NULL) >= 0;) poll(&entry, 1, -1);
    printf("the end [%s]: poll %d\n", pcap_geterr(p), poll(&entry, 1, 50));
    pcap_close(p), pcap_close(far_end);
    return 0;
}
