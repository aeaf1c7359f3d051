/* An IEEE 802.1Q tag in a frame, in network byte order. Licence: MIT or Apache-2.0. */
#ifndef lib_pcap_vlan_h
#define lib_pcap_vlan_h

#include <stdint.h>

struct vlan_tag {
    uint16_t vlan_tpid;
    uint16_t vlan_tci;
};

#define VLAN_TAG_LEN 4

#endif
