/*
 * The corners of libpcap's interface that need no packets from a network: each line of the output is an answer. A test runs this program on two
 * libraries and compares. argv: a directory to write to, and capture files.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pcap.h>
#include <pcap/namedb.h>

static const char *or_null(const char *text) { return text ? text : "(null)"; }

static void codes(void) {
    for (int code = -14; code <= 4; code++) printf("status %d: %s\n", code, pcap_statustostr(code));
    for (int number = -1; number < 8; number++)
        printf("clock %d: %s, %s\n", number, or_null(pcap_tstamp_type_val_to_name(number)),
               or_null(pcap_tstamp_type_val_to_description(number)));
    const char *clocks[] = {"host", "ADAPTER", "adapter_unsynced", "host_hiprec_unsynced", "sundial"};
    for (int i = 0; i < 5; i++) printf("clock %s: %d\n", clocks[i], pcap_tstamp_type_name_to_val(clocks[i]));
    printf("errno: %s, ", pcap_strerror(ENOENT));
    printf("%s\n", pcap_strerror(EPERM));
}

static void link_types(void) {
    const char *names[] = {"EN10MB", "en10mb", "RAW", "LINUX_SLL2", "IEEE802_11_RADIO", "DLT_EN10MB", "nonsense", ""};
    for (int i = 0; i < 8; i++) printf("link type %s: %d\n", names[i], pcap_datalink_name_to_val(names[i]));
    int numbers[] = {0, 1, 12, 101, 105, 113, 127, 276, 289, -1, 70000};
    for (int i = 0; i < 11; i++)
        printf("link type %d: %s, %s\n", numbers[i], or_null(pcap_datalink_val_to_name(numbers[i])),
               or_null(pcap_datalink_val_to_description(numbers[i])));
    printf("link type: %s\n", pcap_datalink_val_to_description_or_dlt(1));
    printf("link type: %s\n", pcap_datalink_val_to_description_or_dlt(70000));
}

static void before_activation(void) {
    char errbuf[PCAP_ERRBUF_SIZE] = "";
    struct pcap_pkthdr *header, first;
    const u_char *data;
    struct pcap_stat stat;
    struct bpf_program program;
    int *list;
    pcap_t *p = pcap_create("no-such-device", errbuf);
    printf("create: %d [%s]\n", p != NULL, errbuf);
    printf("datalink %d snapshot %d swapped %d major %d minor %d fileno %d selectable %d file %d\n", pcap_datalink(p), pcap_snapshot(p),
           pcap_is_swapped(p), pcap_major_version(p), pcap_minor_version(p), pcap_fileno(p), pcap_get_selectable_fd(p), pcap_file(p) != NULL);
    printf("next_ex %d", pcap_next_ex(p, &header, &data));
    printf(" [%s]\n", pcap_geterr(p));
    printf("next %d\n", pcap_next(p, &first) != NULL);
    printf("stats %d", pcap_stats(p, &stat));
    printf(" [%s]\n", pcap_geterr(p));
    printf("inject %d", pcap_inject(p, "x", 1));
    printf(" [%s]\n", pcap_geterr(p));
    printf("direction %d", pcap_setdirection(p, PCAP_D_IN));
    printf(" [%s]\n", pcap_geterr(p));
    printf("compile %d", pcap_compile(p, &program, "tcp", 1, 0));
    printf(" [%s]\n", pcap_geterr(p));
    printf("list %d\n", pcap_list_datalinks(p, &list));
    printf("set link type %d\n", pcap_set_datalink(p, 1));
    printf("precision %d: %d %d %d: %d\n", pcap_get_tstamp_precision(p), pcap_set_tstamp_precision(p, 1), pcap_set_tstamp_precision(p, 7),
           pcap_set_tstamp_precision(p, 0), pcap_get_tstamp_precision(p));
    printf("settings %d %d %d %d %d %d %d\n", pcap_set_snaplen(p, 96), pcap_set_promisc(p, 1), pcap_set_timeout(p, 10),
           pcap_set_buffer_size(p, -5), pcap_set_buffer_size(p, 1 << 20), pcap_set_immediate_mode(p, 1), pcap_set_rfmon(p, 0));
    printf("nonblock %d", pcap_setnonblock(p, 1, errbuf));
    printf(" %d\n", pcap_getnonblock(p, errbuf));
    printf("activate %d [%s]\n", pcap_activate(p), pcap_geterr(p));
    pcap_close(p);
    p = pcap_open_live("no-such-device", 96, 0, 10, errbuf);
    printf("open_live %d [%s]\n", p != NULL, errbuf);
    bpf_u_int32 net = 7, mask = 7;
    printf("lookupnet %d", pcap_lookupnet("any", &net, &mask, errbuf));
    printf(" %u %u\n", net, mask);
    printf("lookupnet lo %d", pcap_lookupnet("lo", &net, &mask, errbuf));
    printf(" %x %x\n", ntohl(net), ntohl(mask));
}

static void dead(void) {
    char errbuf[PCAP_ERRBUF_SIZE] = "";
    struct pcap_pkthdr *header;
    const u_char *data;
    struct pcap_stat stat;
    struct bpf_program program = {0, NULL};
    int *list;
    pcap_t *p = pcap_open_dead(DLT_EN10MB, 1000);
    printf("dead: %d %d %d\n", pcap_datalink(p), pcap_snapshot(p), pcap_get_tstamp_precision(p));
    printf("next_ex %d", pcap_next_ex(p, &header, &data));
    printf(" [%s]\n", pcap_geterr(p));
    printf("stats %d", pcap_stats(p, &stat));
    printf(" [%s]\n", pcap_geterr(p));
    printf("send %d", pcap_sendpacket(p, (const u_char *)"x", 1));
    printf(" [%s]\n", pcap_geterr(p));
    /* libpcap puts what errno happens to hold behind these two. */
    printf("send %d", pcap_sendpacket(p, (const u_char *)"x", 0));
    printf(" [%.44s]\n", pcap_geterr(p));
    printf("inject %d", pcap_inject(p, "x", 0));
    printf(" [%.51s]\n", pcap_geterr(p));
    printf("buffer %d no direction %d", pcap_bufsize(p), pcap_setdirection(p, (pcap_direction_t)-1));
    printf(" [%s]\n", pcap_geterr(p));
    printf("direction %d", pcap_setdirection(p, PCAP_D_IN));
    printf(" [%s]\n", pcap_geterr(p));
    printf("nonblock %d", pcap_setnonblock(p, 1, errbuf));
    printf(" [%s] %d\n", errbuf, pcap_getnonblock(p, errbuf));
    printf("links %d", pcap_list_datalinks(p, &list));
    printf(" %d\n", list[0]);
    pcap_free_datalinks(list);
    printf("set %d\n", pcap_set_datalink(p, DLT_EN10MB));
    printf("set %d", pcap_set_datalink(p, DLT_RAW));
    printf(" [%s]\n", pcap_geterr(p));
    printf("set %d", pcap_set_datalink(p, 70000));
    printf(" [%s]\n", pcap_geterr(p));
    printf("compile %d\n", pcap_compile(p, &program, "tcp port 80", 1, PCAP_NETMASK_UNKNOWN));
    printf("setfilter %d", pcap_setfilter(p, &program));
    printf(" [%s]\n", pcap_geterr(p));
    bpf_dump(&program, 1);
    bpf_dump(&program, 2);
    bpf_dump(&program, 3);
    printf("image %s\n", bpf_image(&program.bf_insns[0], 7));
    printf("valid %d %d %d\n", bpf_validate(program.bf_insns, program.bf_len), bpf_validate(program.bf_insns, program.bf_len - 1),
           bpf_validate(program.bf_insns, 0));
    u_char frame[60] = {0};
    frame[12] = 8, frame[14] = 0x45, frame[23] = 6, frame[37] = 80;
    struct pcap_pkthdr one = {{0, 0}, 60, 60};
    printf("verdicts %d %u", pcap_offline_filter(&program, &one, frame), bpf_filter(program.bf_insns, frame, 60, 60));
    frame[37] = 81;
    printf(" %d %u %u\n", pcap_offline_filter(&program, &one, frame), bpf_filter(program.bf_insns, frame, 60, 60), bpf_filter(NULL, frame, 60, 60));
    pcap_freecode(&program);
    printf("freed %u %d\n", program.bf_len, program.bf_insns == NULL);
    const char *wrong[] = {"tcp port", "host no.such.host.invalid", "ip and arp", "port 99999", "foo bar", "tcp[", "(", "net 10.0.0.1/8"};
    for (int i = 0; i < 8; i++) {
        printf("wrong %s: %d", wrong[i], pcap_compile(p, &program, wrong[i], 1, 0));
        printf(" [%s]\n", pcap_geterr(p));
    }
    printf("empty %d", pcap_compile(p, &program, "", 1, 0));
    printf(" %u %u\n", program.bf_len, program.bf_insns[0].k);
    pcap_freecode(&program);
    printf("null %d", pcap_compile(p, &program, NULL, 1, 0));
    printf(" %u\n", program.bf_len);
    pcap_freecode(&program);
    pcap_close(p);
    p = pcap_open_dead(DLT_EN10MB, 0);
    printf("no snap length %d", pcap_compile(p, &program, "tcp", 1, 0));
    printf(" [%s]\n", pcap_geterr(p));
    pcap_close(p);
    printf("nopcap %d", pcap_compile_nopcap(96, DLT_RAW, &program, "udp", 1, 0));
    printf(" %u\n", program.bf_len);
    pcap_freecode(&program);
    printf("nopcap %d\n", pcap_compile_nopcap(96, DLT_RAW, &program, "udp or", 1, 0));
}

static void names(void) {
    int port, last, protocol;
    const char *ports[] = {"domain", "80", "no-such-service", "ssh"};
    for (int i = 0; i < 4; i++) {
        int found = pcap_nametoport(ports[i], &port, &protocol);
        printf("port %s: %d", ports[i], found);
        if (found) printf(" %d", port);
        printf("\n");
    }
    printf("range %d", pcap_nametoportrange("1000-2000", &port, &last, &protocol));
    printf(" %d %d %d\n", port, last, protocol);
    printf("protocols %d %d %d\n", pcap_nametoproto("tcp"), pcap_nametoproto("udp"), pcap_nametoproto("nonsense"));
    printf("EtherTypes %d %d %d\n", pcap_nametoeproto("ip6"), pcap_nametoeproto("rarp"), pcap_nametoeproto("nonsense"));
    printf("access points %d %d\n", pcap_nametollc("stp"), pcap_nametollc("nonsense"));
    u_char *address = pcap_ether_aton("0:1b:2c:d:e:f");
    printf("station %02x%02x%02x%02x%02x%02x\n", address[0], address[1], address[2], address[3], address[4], address[5]);
    free(address);
}

static int seen;

static void count(u_char *user, const struct pcap_pkthdr *header, const u_char *data) {
    if (seen < 3) printf("  %ld.%06ld %u/%u %02x%02x\n", (long)header->ts.tv_sec, (long)header->ts.tv_usec, header->caplen, header->len, data[0], data[header->caplen - 1]);
    seen++;
    if (user && seen == 2) pcap_breakloop((pcap_t *)user);
}

static void set_in_callback(u_char *user, const struct pcap_pkthdr *header, const u_char *data) {
    struct bpf_program program;
    (void)header, (void)data;
    if (seen++ > 0) return;
    pcap_compile((pcap_t *)user, &program, "less 0", 0, 0);
    printf("  filter in a callback: %d\n", pcap_setfilter((pcap_t *)user, &program));
    pcap_freecode(&program);
}

static void file(const char *name, const char *directory) {
    char errbuf[PCAP_ERRBUF_SIZE] = "", copy[4096];
    struct pcap_pkthdr *header;
    const u_char *data;
    struct pcap_stat stat;
    pcap_t *p = pcap_open_offline(name, errbuf);
    printf("file: %d [%s]\n", p != NULL, errbuf);
    if (!p) return;
    printf("link type %d extra %x snapshot %d swapped %d version %d.%d file %d selectable %d\n", pcap_datalink(p), pcap_datalink_ext(p),
           pcap_snapshot(p), pcap_is_swapped(p), pcap_major_version(p), pcap_minor_version(p), pcap_file(p) != NULL,
           pcap_get_selectable_fd(p) == fileno(pcap_file(p)));
    printf("fileno %d buffer %d monitor %d\n", pcap_fileno(p), pcap_bufsize(p), pcap_can_set_rfmon(p));
    printf("no direction %d", pcap_setdirection(p, (pcap_direction_t)9));
    printf(" [%s]\n", pcap_geterr(p));
    printf("stats %d", pcap_stats(p, &stat));
    printf(" [%s]\n", pcap_geterr(p));
    printf("inject %d", pcap_inject(p, "x", 1));
    printf(" [%s]\n", pcap_geterr(p));
    printf("direction %d", pcap_setdirection(p, PCAP_D_IN));
    printf(" [%s]\n", pcap_geterr(p));
    printf("nonblock %d", pcap_setnonblock(p, 1, errbuf));
    printf(" [%s] %d\n", errbuf, pcap_getnonblock(p, errbuf));
    seen = 0;
    printf("dispatch %d", pcap_dispatch(p, 1, count, NULL));
    printf(" seen %d\n", seen);
    int result = pcap_next_ex(p, &header, &data);
    printf("next_ex %d %u\n", result, result == 1 ? header->caplen : 0);
    seen = 0;
    result = pcap_loop(p, -1, count, (u_char *)p);
    printf("broken loop %d seen %d\n", result, seen);
    result = pcap_loop(p, 0, count, NULL);
    printf("loop %d seen %d [%s]\n", result, seen, pcap_geterr(p));
    struct pcap_pkthdr last;
    printf("after the end: dispatch %d", pcap_dispatch(p, -1, count, NULL));
    printf(" next_ex %d", pcap_next_ex(p, &header, &data));
    printf(" next %d\n", pcap_next(p, &last) != NULL);
    pcap_close(p);

    p = pcap_open_offline(name, errbuf);
    pcap_breakloop(p);
    printf("break before: %d\n", pcap_loop(p, -1, count, NULL));
    seen = 0;
    result = pcap_loop(p, -1, set_in_callback, (u_char *)p);
    printf("loop %d seen %d\n", result, seen);
    pcap_close(p);

    FILE *stream = fopen(name, "rb");
    p = pcap_fopen_offline_with_tstamp_precision(stream, PCAP_TSTAMP_PRECISION_NANO, errbuf);
    printf("precision %d\n", pcap_get_tstamp_precision(p));
    snprintf(copy, sizeof copy, "%s/copy.pcap", directory);
    pcap_dumper_t *dumper = pcap_dump_open(p, copy);
    result = pcap_loop(p, 3, pcap_dump, (u_char *)dumper);
    printf("dump %d at %ld %ld flush %d\n", result, pcap_dump_ftell(dumper), (long)pcap_dump_ftell64(dumper), pcap_dump_flush(dumper));
    pcap_dump_close(dumper);
    dumper = pcap_dump_open_append(p, copy);
    printf("append %d", dumper != NULL);
    if (dumper) {
        result = pcap_dispatch(p, 2, pcap_dump, (u_char *)dumper);
        printf(" %d at %ld", result, pcap_dump_ftell(dumper));
        pcap_dump_close(dumper);
    }
    printf("\n");
    pcap_t *other = pcap_open_dead(DLT_RAW, 77);
    printf("append other %d", pcap_dump_open_append(other, copy) != NULL);
    printf(" [%s]\n", strchr(pcap_geterr(other), ':') + 1);
    printf("dump to nowhere %d", pcap_dump_open(other, "/nowhere/x.pcap") != NULL);
    printf(" [%s]\n", pcap_geterr(other));
    pcap_close(other);
    pcap_close(p);
    p = pcap_open_offline_with_tstamp_precision(name, 9, errbuf);
    printf("odd precision %d [%s]\n", p != NULL, errbuf);
}

int main(int argc, char **argv) {
    char errbuf[PCAP_ERRBUF_SIZE] = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    codes();
    link_types();
    before_activation();
    dead();
    names();
    for (int i = 2; i < argc; i++) file(argv[i], argv[1]);
    printf("no file %d [%s]\n", pcap_open_offline("/nowhere/at/all", errbuf) != NULL, errbuf);
    printf("null %d [%s]\n", pcap_fopen_offline(NULL, errbuf) != NULL, errbuf);
    printf("version %.7s\n", strstr(pcap_lib_version(), "version ") + 8);
    printf("init %d", pcap_init(PCAP_CHAR_ENC_UTF_8, errbuf));
    printf(" %d", pcap_init(PCAP_CHAR_ENC_LOCAL, errbuf));
    printf(" [%s]", errbuf);
    printf(" %d", pcap_init(99, errbuf));
    printf(" [%s]\n", errbuf);
    printf("lookupdev %d [%s]\n", pcap_lookupdev(errbuf) != NULL, errbuf);
    return 0;
}
