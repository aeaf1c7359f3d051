//! Link types by the hardware type of the kernel.
//!
//! The numbers are `ARPHRD_*` of linux/if_arp.h; what they mean for a raw socket is what libpcap found out
//! (`map_arphrd_to_dlt` in `pcap-linux.c`), but for interfaces that libpcap only captures cooked: PPP and tunnels hand
//! out bare IP packets, which is what we call them.

use crate::LinkType;

impl LinkType {
    /// Returns the link type of an interface; [`LinkType::USER0`] where the kernel does not say what its packets are.
    pub fn of_hardware(hardware_type: u16) -> LinkType {
        match hardware_type {
            // ETHER, METRICOM, LOOPBACK
            1 | 23 | 772 => LinkType::ETHERNET,
            // AX25
            3 => LinkType::AX25_KISS,
            // IEEE802, IEEE802_TR
            6 | 800 => LinkType::IEEE802_5,
            // ARCNET
            7 => LinkType::ARCNET_LINUX,
            // IP over Fibre Channel (RFC 2625)
            18 => LinkType::IP_OVER_FC,
            // CAN
            280 => LinkType::CAN_SOCKETCAN,
            // CISCO
            513 => LinkType::C_HDLC,
            // SLIP, CSLIP, SLIP6, CSLIP6, ADAPT, PPP, RAWHDLC, RAWIP
            256..=259 | 264 | 512 | 518 | 519 => LinkType::RAW,
            // TUNNEL, TUNNEL6, SIT, IPGRE, IP6GRE, NONE
            768 | 769 | 776 | 778 | 823 | 0xfffe => LinkType::RAW,
            // FRAD
            770 => LinkType::FRELAY,
            // LOCALTLK
            773 => LinkType::LTALK,
            // FDDI
            774 => LinkType::FDDI,
            // FCPP, FCAL, FCPL, FCFABRIC
            784..=787 => LinkType::FC_2,
            // IEEE80211, IEEE80211_PRISM, IEEE80211_RADIOTAP
            801 => LinkType::IEEE802_11,
            802 => LinkType::IEEE802_11_PRISM,
            803 => LinkType::IEEE802_11_RADIOTAP,
            // IEEE802154
            804 => LinkType::IEEE802_15_4_NOFCS,
            // VSOCKMON
            826 => LinkType::VSOCK,
            _ => LinkType::USER0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::LinkType;

    #[test]
    fn the_common_ones_and_the_unknown() {
        assert_eq!(LinkType::of_hardware(1), LinkType::ETHERNET);
        assert_eq!(LinkType::of_hardware(772), LinkType::ETHERNET);
        assert_eq!(LinkType::of_hardware(0xfffe), LinkType::RAW);
        assert_eq!(LinkType::of_hardware(803), LinkType::IEEE802_11_RADIOTAP);
        assert_eq!(LinkType::of_hardware(0xffff), LinkType::USER0);
    }
}
