/* Names as numbers. Licence: MIT or Apache-2.0. */
#ifndef lib_pcap_namedb_h
#define lib_pcap_namedb_h

#include <stdio.h>

#include <pcap/bpf.h>

#ifdef __cplusplus
extern "C" {
#endif

struct addrinfo;

/* A line of a file like /etc/ethers. */
struct pcap_etherent {
    u_char addr[6];
    char name[122];
};

#ifndef PCAP_ETHERS_FILE
#define PCAP_ETHERS_FILE "/etc/ethers"
#endif

/* No protocol, or more than one. */
#define PROTO_UNDEF -1

struct pcap_etherent *pcap_next_etherent(FILE *);
u_char *pcap_ether_hostton(const char *);
u_char *pcap_ether_aton(const char *);

bpf_u_int32 **pcap_nametoaddr(const char *);
struct addrinfo *pcap_nametoaddrinfo(const char *);
bpf_u_int32 pcap_nametonetaddr(const char *);

/* 1 if there is such a port, or such a range. */
int pcap_nametoport(const char *, int *port, int *proto);
int pcap_nametoportrange(const char *, int *first, int *last, int *proto);
int pcap_nametoproto(const char *);
int pcap_nametoeproto(const char *);
int pcap_nametollc(const char *);

#ifdef __cplusplus
}
#endif
#endif
