//! Gives the library the name under which programs look for it.
//!
//! ```text
//! libpcap.so.0.8    Debian, Ubuntu and their kin; the default
//! libpcap.so.1      upstream and most others: TAPLINE_PCAP_SONAME=libpcap.so.1
//! ```

/// Debian's name for libpcap 0.8 and everything after it.
const DEBIAN: &str = "libpcap.so.0.8";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TAPLINE_PCAP_SONAME");
    let name = std::env::var("TAPLINE_PCAP_SONAME").unwrap_or_else(|_| DEBIAN.to_owned());
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
}
