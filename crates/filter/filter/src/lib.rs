//! Filters: the pcap-filter language, from text to classic BPF and to the code of engines.
//!
//! ```text
//! pcap-filter text --parse--> Ast --lower--> Predicates --generate--> Cfg --simplify--> Cfg --assemble--> bpf::Program --run--> verdict
//! classic BPF ----------------------------------------decode--------> Cfg --raise--> Ir --optimise--> Ir --> native code, eBPF, Machine
//! FPL text --fpl::compile-------------------------------------------------------------^
//! many filters --filterset::FilterSet--> which of them match
//! ```
//!
//! The language is that of pcap-filter(7); a program's verdict on a packet is that of libpcap 1.11, for every link type
//! that libpcap compiles for. [`compile`] gives a program for kernels and the interpreter; native code and eBPF are
//! made from it. The passes are public, for readers of the forms in between.
//!
//! Tests that the language lacks are written with modifiers ([`ast::Modifier`]): `scoped(...)`, `anyvlan(...)`,
//! `inner(...)`, `extensions(...)`, `fragment(...)`. Their words are names unless a parenthesis follows, so each text
//! that libpcap takes keeps its meaning.
//!
//! Deviations from libpcap where its result is wrong:
//!
//! - `protochain` follows at most [`predicate::HEADERS_MAX`] headers, steps over authentication headers as RFC 4302
//!   says, and jumps forward only, so it ends and loads in kernels.
//! - `vxlan and ip` finds the inner packets; libpcap's optimiser loses their offsets.
//! - No scratch cell is read before it is written: `geneve or ip` means the same on every run.
//!
//! A load outside of the captured bytes rejects the packet, whatever surrounds it; loads happen from left to right.
//! libpcap's optimiser moves some of them, so on truncated packets its own verdicts with and without it differ; ours
//! are those without it.
//!
//! Many systems have libpcap 1.10. Filters that it accepts have the same meaning here, except where 1.11 differs:
//!
//! - Numbers out of range are errors: `ip proto 300`, `ether proto 65536`, `decnet host 64.1`, `vpi 256`.
//! - `inbound`, `outbound` and `ifindex` are errors on files whose packets do not say; 1.10 let them match nothing.
//! - `ip multicast` is 224.0.0.0/4, not all above it. `outbound` on SLIP, and fields of SS7, IS-IS and DECnet, are
//!   right.
//! - `byte 0 & 1` and `byte 0 | 1` test what they say. `net 0.0.0.0/0` and `net ::/0` read no address.
//! - `ip6` on BSD loopback files knows the families of all systems, in both byte orders.
//! - New: `vxlan`, `ether proto \lldp` and `\slow`, 802.11 `bar` and `ba`, `gateway`, pf fields by name, 802.11 in PPI,
//!   MS/TP addresses, Ethernet with DSA tags.
//!
//! One limit is wider than in both: arithmetic keeps constants out of scratch cells, so deeper expressions compile.
#![forbid(unsafe_code)]

pub mod ast;
mod compile;
mod contradiction;
mod display;
mod explain;
mod gather;
mod generate;
mod lex;
mod names;
mod options;
mod parse;
pub mod predicate;
mod resolve;
mod witness;

pub use compile::{compile, compile_or_reject, reject_all};
pub use contradiction::is_never_true;
pub use display::equivalent_of_display_filter;
pub use explain::{explain, tree};
pub use generate::{folded, generate};
pub use names::{FixedNames, Ports, Resolver, SystemNames, may_ask_for_names};
pub use options::{HandleKind, Options};
pub use parse::{DEPTH_MAX, parse};
pub use resolve::lower;
pub use tapline_syntax::{Error, Span};
