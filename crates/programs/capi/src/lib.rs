//! libpcap's C interface on Tapline: `libpcap.so`, for programs that know nothing of us.
//!
//! ```text
//! C program ── pcap_t * ──► Handle ──► Source: AF_PACKET (af_packet.rs)      live; or a capture of tapline serve (shared.rs)
//!                                 ├──► Savefile: crate file (savefile.rs)   pcap, pcapng, ERF, packed or not
//!                                 └──► Engine: filter, jit (engine.rs)      what the kernel did not filter
//! ```
//!
//! | file | functions |
//! |---|---|
//! | `creation` | `pcap_create`, `pcap_set_*`, `pcap_activate`, `pcap_open_live` |
//! | `offline`, `dump` | capture files, in and out |
//! | `read` | `pcap_loop`, `pcap_dispatch`, `pcap_next`, `pcap_next_ex`, `pcap_breakloop` |
//! | `filter` | `pcap_compile`, `pcap_setfilter`, `bpf_*` |
//! | `query` | what a handle is and has; sending; `pcap_close` |
//! | `devices`, `names`, `namedb` | interfaces; names of link types and clocks; `pcap/namedb.h` |
//! | `winpcap`, `statistics_mode`, `live_dump` | what WinPcap had beyond libpcap |
//!
//! The symbols are those of Debian's libpcap 1.10.3, and WinPcap's. Functions are thin: they take C's arguments apart,
//! call a crate, and give codes and texts that programs expect. A panic ends at the border ([`failure`]): the caller
//! gets an error. Memory that C frees is malloc(3)'s ([`memory`]).
//!
//! Unsafe code is the nature of this crate: each function that takes pointers believes what libpcap's manual page asks
//! of its caller, says so under "Safety", and checks what can be checked.

mod af_packet;
mod cooked;
pub mod creation;
mod device_name;
pub mod devices;
pub mod dump;
mod engine;
mod environment;
mod failure;
#[cfg(test)]
mod fake;
mod fetch;
mod file_header;
pub mod filter;
pub mod handle;
mod live_dump;
mod memory;
pub mod namedb;
pub mod names;
pub mod offline;
mod precision;
pub mod query;
pub mod raw;
pub mod read;
mod savefile;
mod searched;
mod settings;
mod shared;
mod source;
mod statistics_mode;
mod stdio;
mod stored;
mod tally;
mod vlan;
pub mod winpcap;
