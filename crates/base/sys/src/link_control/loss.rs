//! Counters of drivers (`ethtool -S`) that count received packets as lost. Their names are each driver's own.

/// Parts of the names of such counters, from the drivers of Linux 6.
const LOSS_WORDS: [&str; 13] = [
    "drop",
    "miss",
    "discard",
    "no_buf",
    "nobuf",
    "out_of_buf",
    "no_dma",
    "no_desc",
    "fifo",
    "overrun",
    "overflow",
    "alloc_fail",
    "no_skb",
];

/// Whether a driver's counter of this name counts received packets that were lost.
pub fn counts_receive_loss(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_of_sending = name.starts_with("tx") || name.contains("_tx") || name.contains(".tx");
    !is_of_sending && LOSS_WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_real_drivers() {
        for name in [
            "rx_missed_errors",
            "rx_no_buffer_count",
            "rx_discards_phy",
            "rx_out_of_buffer",
            "rx_no_dma_resources",
            "rx_queue_3_drops",
            "port.rx_dropped",
            "rx0_nobuf",
            "rx_fifo_errors",
            "[3]: rx_buf_alloc_fails_alloc_fail",
        ] {
            assert!(counts_receive_loss(name), "{name}");
        }
        for name in [
            "rx_packets",
            "tx_dropped",
            "port.tx_dropped_link_down",
            "vport_tx_drop",
            "rx_bytes",
            "peer_ifindex",
        ] {
            assert!(!counts_receive_loss(name), "{name}");
        }
    }
}
