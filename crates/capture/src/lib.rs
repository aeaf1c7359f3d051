//! Sources and sinks, live capture on AF_PACKET, the loop that joins them, and the account of every packet.
