//! Packets as text, in the form of tcpdump, and as JSON.
