//! pcap, pcapng and ERF files, plain or compressed: readers and writers.
