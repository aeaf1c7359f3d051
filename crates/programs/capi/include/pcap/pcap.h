/*
 * libpcap's interface, as Tapline's libpcap.so has it. Names, numbers and layouts are libpcap 1.10's: a program that is compiled with this header runs on
 * libpcap too, and the other way. What stands at the end is WinPcap's, and not in libpcap on Unix.
 *
 *   pcap_create -> pcap_set_* -> pcap_activate ---+
 *   pcap_open_live -------------------------------+-> pcap_setfilter -> pcap_loop, pcap_dispatch, pcap_next_ex -> pcap_close
 *   pcap_open_offline ----------------------------+
 *
 * What each function does is told by the manual pages pcap(3PCAP). Licence: MIT or Apache-2.0.
 */
#ifndef lib_pcap_pcap_h
#define lib_pcap_pcap_h

#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <sys/types.h>

#include <pcap/bpf.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PCAP_VERSION_MAJOR 2
#define PCAP_VERSION_MINOR 4

#define PCAP_ERRBUF_SIZE 256

typedef struct pcap pcap_t;
typedef struct pcap_dumper pcap_dumper_t;
typedef struct pcap_if pcap_if_t;
typedef struct pcap_addr pcap_addr_t;

/* The beginning of a capture file. */
struct pcap_file_header {
    bpf_u_int32 magic;
    u_short version_major;
    u_short version_minor;
    bpf_int32 thiszone;
    bpf_u_int32 sigfigs;
    bpf_u_int32 snaplen;
    bpf_u_int32 linktype;
};

/* The upper bits of a file's link type: how many bytes of check sequence packets have, in units of two. */
#define LT_FCS_LENGTH_PRESENT(x) ((x) & 0x04000000)
#define LT_FCS_LENGTH(x) (((x) & 0xF0000000) >> 28)
#define LT_FCS_DATALINK_EXT(x) ((((x) & 0xF) << 28) | 0x04000000)

typedef enum { PCAP_D_INOUT = 0, PCAP_D_IN, PCAP_D_OUT } pcap_direction_t;

struct pcap_pkthdr {
    struct timeval ts;  /* tv_usec holds nanoseconds if those were asked for */
    bpf_u_int32 caplen; /* bytes captured */
    bpf_u_int32 len;    /* bytes on the wire */
};

struct pcap_stat {
    u_int ps_recv;   /* passed the filter */
    u_int ps_drop;   /* of these, for want of room */
    u_int ps_ifdrop; /* lost by the adapter */
};

struct pcap_if {
    struct pcap_if *next;
    char *name;
    char *description;
    struct pcap_addr *addresses;
    bpf_u_int32 flags;
};

#define PCAP_IF_LOOPBACK 0x00000001
#define PCAP_IF_UP       0x00000002
#define PCAP_IF_RUNNING  0x00000004
#define PCAP_IF_WIRELESS 0x00000008
#define PCAP_IF_CONNECTION_STATUS                0x00000030
#define PCAP_IF_CONNECTION_STATUS_UNKNOWN        0x00000000
#define PCAP_IF_CONNECTION_STATUS_CONNECTED      0x00000010
#define PCAP_IF_CONNECTION_STATUS_DISCONNECTED   0x00000020
#define PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE 0x00000030

struct pcap_addr {
    struct pcap_addr *next;
    struct sockaddr *addr;
    struct sockaddr *netmask;
    struct sockaddr *broadaddr;
    struct sockaddr *dstaddr;
};

typedef void (*pcap_handler)(u_char *, const struct pcap_pkthdr *, const u_char *);

#define PCAP_ERROR                          -1
#define PCAP_ERROR_BREAK                    -2
#define PCAP_ERROR_NOT_ACTIVATED            -3
#define PCAP_ERROR_ACTIVATED                -4
#define PCAP_ERROR_NO_SUCH_DEVICE           -5
#define PCAP_ERROR_RFMON_NOTSUP             -6
#define PCAP_ERROR_NOT_RFMON                -7
#define PCAP_ERROR_PERM_DENIED              -8
#define PCAP_ERROR_IFACE_NOT_UP             -9
#define PCAP_ERROR_CANTSET_TSTAMP_TYPE      -10
#define PCAP_ERROR_PROMISC_PERM_DENIED      -11
#define PCAP_ERROR_TSTAMP_PRECISION_NOTSUP  -12

#define PCAP_WARNING                     1
#define PCAP_WARNING_PROMISC_NOTSUP      2
#define PCAP_WARNING_TSTAMP_TYPE_NOTSUP  3

#define PCAP_NETMASK_UNKNOWN 0xffffffff

#define PCAP_CHAR_ENC_LOCAL 0x00000000U
#define PCAP_CHAR_ENC_UTF_8 0x00000001U

#define PCAP_TSTAMP_HOST                 0
#define PCAP_TSTAMP_HOST_LOWPREC         1
#define PCAP_TSTAMP_HOST_HIPREC          2
#define PCAP_TSTAMP_ADAPTER              3
#define PCAP_TSTAMP_ADAPTER_UNSYNCED     4
#define PCAP_TSTAMP_HOST_HIPREC_UNSYNCED 5

#define PCAP_TSTAMP_PRECISION_MICRO 0
#define PCAP_TSTAMP_PRECISION_NANO  1

int pcap_init(unsigned int, char *);
const char *pcap_lib_version(void);

/* Devices. */
int pcap_findalldevs(pcap_if_t **, char *);
void pcap_freealldevs(pcap_if_t *);
char *pcap_lookupdev(char *);
int pcap_lookupnet(const char *, bpf_u_int32 *, bpf_u_int32 *, char *);

/* Live captures. */
pcap_t *pcap_create(const char *, char *);
int pcap_set_snaplen(pcap_t *, int);
int pcap_set_promisc(pcap_t *, int);
int pcap_can_set_rfmon(pcap_t *);
int pcap_set_rfmon(pcap_t *, int);
int pcap_set_timeout(pcap_t *, int);
int pcap_set_tstamp_type(pcap_t *, int);
int pcap_set_immediate_mode(pcap_t *, int);
int pcap_set_buffer_size(pcap_t *, int);
int pcap_set_tstamp_precision(pcap_t *, int);
int pcap_get_tstamp_precision(pcap_t *);
int pcap_set_protocol_linux(pcap_t *, int);
int pcap_activate(pcap_t *);
pcap_t *pcap_open_live(const char *, int, int, int, char *);
int pcap_list_tstamp_types(pcap_t *, int **);
void pcap_free_tstamp_types(int *);
int pcap_tstamp_type_name_to_val(const char *);
const char *pcap_tstamp_type_val_to_name(int);
const char *pcap_tstamp_type_val_to_description(int);

/* Files, and handles that only compile filters. */
pcap_t *pcap_open_dead(int, int);
pcap_t *pcap_open_dead_with_tstamp_precision(int, int, u_int);
pcap_t *pcap_open_offline(const char *, char *);
pcap_t *pcap_open_offline_with_tstamp_precision(const char *, u_int, char *);
pcap_t *pcap_fopen_offline(FILE *, char *);
pcap_t *pcap_fopen_offline_with_tstamp_precision(FILE *, u_int, char *);

void pcap_close(pcap_t *);

/* Packets. */
int pcap_loop(pcap_t *, int, pcap_handler, u_char *);
int pcap_dispatch(pcap_t *, int, pcap_handler, u_char *);
const u_char *pcap_next(pcap_t *, struct pcap_pkthdr *);
int pcap_next_ex(pcap_t *, struct pcap_pkthdr **, const u_char **);
void pcap_breakloop(pcap_t *);
int pcap_stats(pcap_t *, struct pcap_stat *);
int pcap_setdirection(pcap_t *, pcap_direction_t);
int pcap_getnonblock(pcap_t *, char *);
int pcap_setnonblock(pcap_t *, int, char *);
int pcap_get_selectable_fd(pcap_t *);
const struct timeval *pcap_get_required_select_timeout(pcap_t *);
int pcap_inject(pcap_t *, const void *, size_t);
int pcap_sendpacket(pcap_t *, const u_char *, int);

/* Filters. */
int pcap_compile(pcap_t *, struct bpf_program *, const char *, int, bpf_u_int32);
int pcap_compile_nopcap(int, int, struct bpf_program *, const char *, int, bpf_u_int32);
void pcap_freecode(struct bpf_program *);
int pcap_setfilter(pcap_t *, struct bpf_program *);
int pcap_offline_filter(const struct bpf_program *, const struct pcap_pkthdr *, const u_char *);

/* Errors. */
const char *pcap_statustostr(int);
const char *pcap_strerror(int);
char *pcap_geterr(pcap_t *);
void pcap_perror(pcap_t *, const char *);

/* Link types. */
int pcap_datalink(pcap_t *);
int pcap_datalink_ext(pcap_t *);
int pcap_list_datalinks(pcap_t *, int **);
void pcap_free_datalinks(int *);
int pcap_set_datalink(pcap_t *, int);
int pcap_datalink_name_to_val(const char *);
const char *pcap_datalink_val_to_name(int);
const char *pcap_datalink_val_to_description(int);
const char *pcap_datalink_val_to_description_or_dlt(int);

/* What a handle is. */
int pcap_snapshot(pcap_t *);
int pcap_is_swapped(pcap_t *);
int pcap_major_version(pcap_t *);
int pcap_minor_version(pcap_t *);
int pcap_bufsize(pcap_t *);
FILE *pcap_file(pcap_t *);
int pcap_fileno(pcap_t *);

/* Writing files. */
pcap_dumper_t *pcap_dump_open(pcap_t *, const char *);
pcap_dumper_t *pcap_dump_open_append(pcap_t *, const char *);
pcap_dumper_t *pcap_dump_fopen(pcap_t *, FILE *);
FILE *pcap_dump_file(pcap_dumper_t *);
long pcap_dump_ftell(pcap_dumper_t *);
int64_t pcap_dump_ftell64(pcap_dumper_t *);
int pcap_dump_flush(pcap_dumper_t *);
void pcap_dump_close(pcap_dumper_t *);
void pcap_dump(u_char *, const struct pcap_pkthdr *, const u_char *);

/*
 * WinPcap's additions.
 */

/* Another size of the kernel's buffer, in bytes; what is in it is lost. */
int pcap_setbuff(pcap_t *, int);
/* How many bytes wake the reader before the timeout. */
int pcap_setmintocopy(pcap_t *, int);

#define MODE_CAPT 0
#define MODE_STAT 1
#define MODE_DUMP 0x10
/*
 * MODE_STAT: in place of packets, each timeout gives a record of two uint64_t, packets and bytes since the last.
 * MODE_STAT | MODE_DUMP: likewise, while pcap_live_dump writes the packets.
 */
int pcap_setmode(pcap_t *, int);

/* Has the library write packets to a file, up to these numbers of bytes and packets; 0 is no limit. */
int pcap_live_dump(pcap_t *, char *, int maxsize, int maxpacks);
/* 1 once a limit was reached; with sync != 0 waits for that. */
int pcap_live_dump_ended(pcap_t *, int sync);

/* Packets to send together: headers and data one behind the other. */
struct pcap_send_queue {
    u_int maxlen;
    u_int len;
    char *buffer;
};
typedef struct pcap_send_queue pcap_send_queue;

pcap_send_queue *pcap_sendqueue_alloc(u_int);
void pcap_sendqueue_destroy(pcap_send_queue *);
/* -1 if there is no room. */
int pcap_sendqueue_queue(pcap_send_queue *, const struct pcap_pkthdr *, const u_char *);
/* With sync != 0 as far apart as their times are. Returns the bytes of the queue that were sent. */
u_int pcap_sendqueue_transmit(pcap_t *, pcap_send_queue *, int sync);

/* The counters, and how many bytes they have. */
struct pcap_stat *pcap_stats_ex(pcap_t *, int *);

#define PCAP_SAMP_NOSAMP           0
#define PCAP_SAMP_1_EVERY_N        1
#define PCAP_SAMP_FIRST_AFTER_N_MS 2

struct pcap_samp {
    int method;
    int value;
};

/* What is written there decides which packets come. */
struct pcap_samp *pcap_setsampling(pcap_t *);

#ifdef __cplusplus
}
#endif
#endif
