//! The filters that are measured: those of the papers on BPF and its successors, and one that people type.

/// A filter and the name it has in reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
}

/// From nothing to 53 instructions.
pub(crate) const FILTERS: &[Filter] = &[
    Filter { name: "none", text: "" },
    Filter { name: "ip", text: "ip" },
    Filter { name: "udp", text: "udp" },
    Filter { name: "tcp80", text: "tcp port 80" },
    Filter { name: "srcdst", text: "src host 1.1.1.1 and dst host 2.2.2.2" },
    Filter { name: "tcp5", text: "tcp port 10 or 20 or 30 or 40 or 50" },
    Filter {
        name: "h10p10",
        text: "ip host (1.1.1.1 or 2.2.2.2 or 3.3.3.3 or 4.4.4.4 or 5.5.5.5 or 6.6.6.6 or 7.7.7.7 or 8.8.8.8 or \
               9.9.9.9 or 10.10.10.10) and tcp port (10 or 20 or 30 or 40 or 50 or 60 or 70 or 80 or 90 or 100)",
    },
];
