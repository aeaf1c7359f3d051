/* The old name of pcap/bpf.h. Licence: MIT or Apache-2.0. */
#include <pcap/bpf.h>
