//! The filters that are measured: those of the papers on BPF and its successors.

/// A filter and the name it has in reports.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    /// Short name for reports, such as `tcp5`.
    pub name: &'static str,
    /// The filter, in the pcap-filter language.
    pub text: &'a str,
    /// Fields of a frame that passes every test and matches the last; `None` for the empty filter and for filters of
    /// users.
    pub worst: Option<WorstCasePacket>,
}

/// The fields of an IPv4 frame that decide the verdict.
#[derive(Clone, Copy, Debug)]
pub struct WorstCasePacket {
    /// IP protocol number.
    pub protocol: u8,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
    /// Destination port of TCP or UDP.
    pub dst_port: u16,
}

const TCP: u8 = 6;
const UDP: u8 = 17;

const fn worst(protocol: u8, src: u8, dst: u8, dst_port: u16) -> Option<WorstCasePacket> {
    Some(WorstCasePacket { protocol, src: [src; 4], dst: [dst; 4], dst_port })
}

/// From the empty filter to one of 53 instructions.
pub const FILTERS: &[Filter<'_>] = &[
    Filter { name: "none", text: "", worst: None },
    Filter { name: "ip", text: "ip", worst: worst(TCP, 200, 201, 9) },
    Filter { name: "udp", text: "udp", worst: worst(UDP, 200, 201, 9) },
    Filter { name: "tcp80", text: "tcp port 80", worst: worst(TCP, 200, 201, 80) },
    Filter { name: "srcdst", text: "src host 1.1.1.1 and dst host 2.2.2.2", worst: worst(TCP, 1, 2, 9) },
    Filter { name: "tcp5", text: "tcp port 10 or 20 or 30 or 40 or 50", worst: worst(TCP, 200, 201, 50) },
    Filter {
        name: "h10p10",
        text: "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5 or 6.6.6.6 or 7.7.7.7 or 8.8.8.8 or \
               9.9.9.9 or 10.10.10.10) and tcp port (10 or 20 or 30 or 40 or 50 or 60 or 70 or 80 or 90 or 100)",
        worst: worst(TCP, 200, 10, 100),
    },
];
