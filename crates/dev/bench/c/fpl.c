/* What the FPL programs that are measured do, written by hand in C: the peer of `tapline-bench fpl`.
 *
 *   fpl PROGRAM FILE MILLISECONDS   ->   "nanoseconds-per-packet accepted digest-of-memory"
 *
 * FILE is one packet after the other: length (4 bytes, this machine's order), bytes. Each packet's headers are found as FPL's fields find
 * them: behind up to 2 VLAN tags, IPv4 options, IPv6 extension headers, and never beyond what was captured.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define CELLS 1024
#define BATCH 256

/* As large as a record of a batch, and the same parts of it are read: what is known about a packet stands between its place and its length. */
struct record {
    const uint8_t *data;
    uint8_t meta[48];
    uint32_t len, options_len;
};

static uint64_t cells[CELLS];

static inline uint32_t be16(const uint8_t *p) {
    return (uint32_t)p[0] << 8 | p[1];
}

static inline uint32_t be32(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, 4);
    return __builtin_bswap32(word);
}

static inline uint64_t le64(const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return word;
}

struct network {
    uint32_t type, start;
};

static inline int is_tag(uint32_t type) {
    return type == 0x8100 || type == 0x88a8 || type == 0x9100;
}

static inline struct network network(const uint8_t *p, uint32_t len) {
    struct network n = {0, 14};
    if (len < 14)
        return n;
    n.type = be16(p + 12);
    for (int tags = 0; tags < 2 && is_tag(n.type) && len >= n.start + 4; tags++) {
        n.type = be16(p + n.start + 2);
        n.start += 4;
    }
    return n;
}

struct transport {
    uint32_t protocol, start, end;
};

static inline struct transport behind_ipv4(const uint8_t *p, uint32_t len, uint32_t ip) {
    struct transport t = {0, 0, 0};
    uint32_t header = (p[ip] & 15u) * 4;
    if (header < 20 || (be16(p + ip + 6) & 0x1fff))
        return t;
    t.protocol = p[ip + 9];
    t.start = ip + header;
    t.end = ip + be16(p + ip + 2);
    if (t.end > len || t.end == ip)
        t.end = len;
    return t;
}

static inline struct transport behind_ipv6(const uint8_t *p, uint32_t len, uint32_t ip) {
    struct transport t = {0, 0, 0};
    uint32_t next = p[ip + 6], at = ip + 40;
    for (int count = 0; count < 8; count++) {
        uint32_t size;
        if (next != 0 && next != 43 && next != 44 && next != 51 && next != 60)
            break;
        if (len < at + 8)
            return t;
        if (next == 44 && be16(p + at + 2) >> 3)
            return t;
        size = next == 44 ? 8 : next == 51 ? (p[at + 1] + 2u) * 4 : (p[at + 1] + 1u) * 8;
        next = p[at];
        at += size;
    }
    t.protocol = next;
    t.start = at;
    t.end = ip + 40 + be16(p + ip + 4);
    if (t.end > len || t.end == ip + 40)
        t.end = len;
    return t;
}

static inline struct transport transport(const uint8_t *p, uint32_t len, struct network n) {
    struct transport none = {0, 0, 0};
    if (n.type == 0x800 && len >= n.start + 20)
        return behind_ipv4(p, len, n.start);
    if (n.type == 0x86dd && len >= n.start + 40)
        return behind_ipv6(p, len, n.start);
    return none;
}

/* PKT.IP_PROTO */
static inline uint32_t ip_protocol(const uint8_t *p, uint32_t len, struct network n) {
    return n.type == 0x800 && len >= n.start + 20 ? p[n.start + 9] : 0;
}

/* ---- the simple filter: TCP over IPv4 to port 80 ---- */

static inline uint64_t simple(const uint8_t *p, uint32_t len) {
    struct network n = network(p, len);
    if (ip_protocol(p, len, n) != 6)
        return 0;
    struct transport t = behind_ipv4(p, len, n.start);
    return t.protocol == 6 && len >= t.start + 20 && be16(p + t.start + 2) == 80;
}

/* ---- Figure 6: packets of each TCP flow, by hash ---- */

static inline uint64_t mix(uint64_t h, uint64_t word) {
    h = (h ^ word) * 0xbf58476d1ce4e5b9u;
    return h ^ h >> 32;
}

static inline uint64_t hash12(const uint8_t *p) {
    uint32_t last;
    uint64_t h = 12 * 0x9e3779b97f4a7c15u;
    memcpy(&last, p + 8, 4);
    h = mix(mix(h, le64(p)), last) * 0x94d049bb133111ebu;
    return h ^ h >> 29;
}

static inline uint64_t count_flows(const uint8_t *p, uint32_t len) {
    if (ip_protocol(p, len, network(p, len)) == 6) {
        if (len < 38)
            return 0;
        cells[hash12(p + 26) & 1023]++;
    }
    return 0;
}

/* ---- Figure 7: RTSP sessions and the media that they agree on ---- */

static void learn(uint64_t port) {
    uint64_t held = cells[4] < 64 ? cells[4] : 64;
    for (uint64_t i = 0; i < held; i++)
        if (cells[6 + i] == port)
            return;
    cells[6 + cells[5] % 64] = port;
    cells[5]++;
    cells[4] = held < 64 ? held + 1 : 64;
}

static void parameter(const char *text) {
    const char *value = strchr(text, '=');
    unsigned first, last;
    if (!value || (strncasecmp(text, "client_port=", 12) && strncasecmp(text, "server_port=", 12)))
        return;
    switch (sscanf(value + 1, "%u-%u", &first, &last)) {
    case 1:
        last = first;
        break;
    case 2:
        break;
    default:
        return;
    }
    if (first > 65535 || last > 65535)
        return;
    for (unsigned port = first; port <= last && port < first + 16; port++)
        learn(port);
}

/* The traffic that is measured tells its ports in lines that no segment's end cuts. */
static void rtsp_ports(const uint8_t *data, uint32_t len) {
    char line[512];
    while (len) {
        const uint8_t *end = memchr(data, '\n', len);
        if (!end)
            return;
        size_t size = (size_t)(end - data);
        if (size >= 10 && size < sizeof line && !strncasecmp((const char *)data, "transport:", 10)) {
            memcpy(line, data + 10, size - 10);
            line[size - 10] = 0;
            for (char *part = strtok(line, ";,\r"); part; part = strtok(NULL, ";,\r"))
                parameter(part);
        }
        len -= size + 1;
        data = end + 1;
    }
}

static inline uint64_t rtsp(const uint8_t *p, uint32_t len) {
    struct network n = network(p, len);
    struct transport t = transport(p, len, n);
    uint64_t tcp = 0, source = 0, destination = 0;
    if (t.protocol == 6 && len >= t.start + 20)
        tcp = 1;
    else if (t.protocol != 17 || len < t.start + 8)
        t.protocol = 0;
    if (tcp || t.protocol == 17) {
        source = be16(p + t.start);
        destination = be16(p + t.start + 2);
    }
    if (tcp && (source == 554 || destination == 554)) {
        uint32_t header = (p[t.start + 12] >> 4) * 4u, start = t.start + header;
        uint64_t from = 0, to = 0, low_from = 0, low_to = 0;
        if (header < 20) {
            start = 0;
            t.end = 0;
        }
        if (n.type == 0x800) {
            from = be32(p + n.start + 12);
            to = be32(p + n.start + 16);
        } else {
            low_from = __builtin_bswap64(le64(p + n.start + 16));
            low_to = __builtin_bswap64(le64(p + n.start + 32));
        }
        cells[0] = start;
        cells[1] = t.end > start ? t.end - start : 0;
        cells[2] = (from << 16 << 16 | to) ^ low_from ^ low_to * 3 ^ (source << 16 | destination) * 0x9e3779b97f4a7c15u;
        cells[3] = be32(p + t.start + 4);
        if (start < len)
            rtsp_ports(p + start, (uint32_t)cells[1]);
        return 1;
    }
    uint64_t held = cells[4] < 64 ? cells[4] : 64;
    for (uint64_t i = 0; i < held; i++)
        if (cells[6 + i] == destination || cells[6 + i] == source)
            return 1;
    return 0;
}

/* ---- the loop ---- */

/* A batch a call, as native code has it: the indices of accepted packets are kept. */
#define SELECT(program)                                                                                                \
    __attribute__((noinline)) static size_t select_##program(const struct record *records, size_t count,              \
                                                              uint8_t *indices) {                                      \
        size_t kept = 0;                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                                           \
            indices[kept] = (uint8_t)i;                                                                                \
            kept += program(records[i].data, records[i].len) != 0;                                                     \
        }                                                                                                              \
        return kept;                                                                                                   \
    }

SELECT(simple)
SELECT(count_flows)
SELECT(rtsp)

typedef size_t (*select_fn)(const struct record *, size_t, uint8_t *);

static size_t pass(select_fn select, const struct record *records, size_t count) {
    static uint8_t indices[BATCH];
    size_t accepted = 0;
    for (size_t at = 0; at < count; at += BATCH)
        accepted += select(records + at, count - at < BATCH ? count - at : BATCH, indices);
    return accepted;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static select_fn chosen(const char *name) {
    if (!strcmp(name, "simple"))
        return select_simple;
    if (!strcmp(name, "count-flows"))
        return select_count_flows;
    return strcmp(name, "rtsp") ? NULL : select_rtsp;
}

int main(int argc, char **argv) {
    FILE *file = argc == 4 ? fopen(argv[2], "rb") : NULL;
    select_fn select = argc == 4 ? chosen(argv[1]) : NULL;
    if (!file || !select) {
        fprintf(stderr, "usage: fpl simple|count-flows|rtsp FILE MILLISECONDS\n");
        return 1;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), count = 0;
    rewind(file);
    uint8_t *bytes = malloc(size + 1);
    struct record *records = calloc(size / 4 + 1, sizeof *records);
    if (!bytes || !records || fread(bytes, 1, size, file) != size)
        return 1;
    for (size_t at = 0; at + 4 <= size; count++) {
        uint32_t len;
        memcpy(&len, bytes + at, 4);
        records[count].data = bytes + at + 4;
        records[count].len = len;
        at += 4 + len;
    }
    size_t accepted = pass(select, records, count);
    uint64_t digest = 0;
    for (uint64_t i = 0; i < CELLS; i++)
        digest += cells[i] * (2 * i + 1);
    double start = now(), end = start + atof(argv[3]) * 1e6, passes = 0, time;
    do {
        for (int i = 0; i < 16; i++)
            pass(select, records, count);
        passes += 16;
        time = now();
    } while (time < end);
    printf("%.4f %zu %llu\n", (time - start) / (passes * (double)count), accepted, (unsigned long long)digest);
    return 0;
}
