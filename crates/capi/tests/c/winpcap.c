/*
 * WinPcap's additions. Each line of the output is a fact that the test knows. argv: the interface to read, the one at the other end of its cable, a file.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <pcap.h>

static char errbuf[PCAP_ERRBUF_SIZE];
static pcap_t *far_end;
static u_char frame[1514] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45};

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

static void statistics(const char *device) {
    pcap_t *p = open_near(device, 300);
    struct pcap_pkthdr *header;
    const u_char *data;
    uint64_t counts[2], packets = 0, bytes = 0;
    struct bpf_program program;
    pcap_compile(p, &program, "greater 50", 1, 0);
    printf("filter %d mode %d\n", pcap_setfilter(p, &program), pcap_setmode(p, MODE_STAT));
    pcap_freecode(&program);
    send_many(10, 50), send_many(5, 1000), send_many(7, 42);
    for (int i = 0; i < 3; i++) {
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
    FILE *stream = fopen(name, "rb");
    fseek(stream, 0, SEEK_END);
    printf("bytes %ld\n", ftell(stream));
    fclose(stream);
    printf("dump %d\n", pcap_live_dump(p, name, 0, 0));
    send_many(3, 100);
    usleep(300000);
    pcap_close(p);
    file = pcap_open_offline(name, errbuf);
    for (packets = 0; pcap_next_ex(file, &header, &data) == 1;) packets++;
    printf("until the close %d\n", packets);
    pcap_close(file);
}

static void queue(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct pcap_pkthdr header = {{1000, 0}, 100, 100}, *seen;
    const u_char *data;
    u_int room = 3 * (sizeof header + 100) + 10;
    pcap_send_queue *packets = pcap_sendqueue_alloc(room);
    for (int i = 0; i < 4; i++) {
        header.ts.tv_usec = i * 20000;
        frame[20] = 100 + i;
        printf("queued %d\n", pcap_sendqueue_queue(packets, &header, frame));
    }
    printf("sent %d\n", pcap_sendqueue_transmit(far_end, packets, 1) == packets->len);
    long first = 0, last = 0;
    for (int i = 0; i < 3; i++) {
        while (pcap_next_ex(p, &seen, &data) == 0) {}
        last = seen->ts.tv_sec * 1000000 + seen->ts.tv_usec;
        if (i == 0) first = last;
        printf("got %d\n", data[20]);
    }
    printf("gap kept %d\n", last - first >= 40000 - 1000);
    pcap_sendqueue_destroy(packets);
    pcap_close(p);
}

static void sampling(const char *device) {
    pcap_t *p = open_near(device, 20);
    struct pcap_pkthdr *header;
    const u_char *data;
    struct pcap_samp *sampling = pcap_setsampling(p);
    sampling->method = PCAP_SAMP_1_EVERY_N, sampling->value = 4;
    send_many(20, 100);
    printf("one of four:");
    for (int got = 0; got < 5; got++) {
        while (pcap_next_ex(p, &header, &data) == 0) {}
        printf(" %d", data[20]);
    }
    printf("\n");
    sampling->method = PCAP_SAMP_FIRST_AFTER_N_MS, sampling->value = 60000;
    send_many(5, 100);
    while (pcap_next_ex(p, &header, &data) == 0) {}
    printf("first after a minute %d\n", data[20]);
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

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    far_end = pcap_open_live(argv[2], 100, 0, 10, errbuf);
    if (!far_end) return printf("%s\n", errbuf), 1;
    statistics(argv[1]);
    live_dump(argv[1], argv[3]);
    queue(argv[1]);
    sampling(argv[1]);
    buffers(argv[1]);
    pcap_close(far_end);
    return 0;
}
