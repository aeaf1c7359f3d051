//! `tapline interfaces`: interfaces, and the programs that capture there.
//!
//! ```text
//! 2: eth0  up, running, 10 Gbit/s, ixgbe
//!      link type   EN10MB (Ethernet), MTU 1500, 52:54:00:12:34:56
//!      addresses   192.0.2.7/24, 2001:db8::7/64
//!      time stamps host, adapter_unsynced
//!      xdp         program 41, in the driver: -i xdp: cannot attach another one
//!      captured by suricata (pid 812, uid 998)
//! tap:office  capture of tapline serve
//!      link type   EN10MB (Ethernet)
//!      interfaces  eth0
//! ```

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use tapline_capture::af_packet::{self, CapturingProcess, InterfaceInfo};
use tapline_packet::LinkType;
use tapline_sys::XdpProgram;
use tapline_sys::sandbox::AllowedAccess;
use tapline_tap_client::protocol::{OfferedCapture, OfferedInterface};

use crate::args::SNAP_LEN;
use crate::container;
use crate::live::{self, TAP};
use crate::privileges;

#[derive(Debug, Args)]
pub(crate) struct InterfacesArgs {
    /// One JSON array instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Look in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME")]
    pub(crate) netns: Option<String>,
    /// Look in the network of this container: its name, its pod's, or the beginning of its identifier (containerd,
    /// Kubernetes, Docker, Podman, CRI-O, systemd-nspawn, LXC).
    #[arg(long, value_name = "NAME", value_parser = container::process, conflicts_with = "netns")]
    pub(crate) container: Option<String>,
    /// Socket of the daemon whose captures are listed. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH", conflicts_with = "netns")]
    pub(crate) socket: Option<PathBuf>,
}

/// Time limit for a daemon's list of captures: the command lists interfaces in the first place.
const DAEMON_PATIENCE: Duration = Duration::from_millis(500);

/// Prints the list.
pub(crate) fn list(args: &InterfacesArgs) -> Result<()> {
    let interfaces = af_packet::list(args.netns.as_deref())?;
    privileges::confine_quietly(&AllowedAccess::default());
    // A daemon that is named must be there; that of the machine may be.
    let captures = match &args.netns {
        Some(_) => Vec::new(),
        None => match live::captures(args.socket.as_deref(), DAEMON_PATIENCE) {
            Err(error) if args.socket.is_some() => return Err(error.into()),
            captures => captures.unwrap_or_default(),
        },
    };
    let text = if args.json {
        let all = interfaces.iter().map(to_json).chain(captures.iter().map(capture_json));
        format!("{}\n", Value::Array(all.collect()))
    } else {
        interfaces.iter().map(to_text).chain(captures.iter().map(capture_text)).collect()
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

/// A capture of `tapline serve`.
fn capture_text(capture: &OfferedCapture) -> String {
    let mut text = format!("{TAP}{}  capture of tapline serve\n", capture.name);
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "     {name:<12}{value}");
        }
    };
    row("link type", joined(link_types(capture).into_iter().map(link_type)));
    row(
        "interfaces",
        joined(capture.interfaces.iter().map(|interface| interface.interface(0, "").label().to_owned())),
    );
    row("filter", capture.forced_filter.clone());
    row("bytes", seen_text(capture));
    text
}

/// The readable part of each packet, where that is less than all.
fn seen_text(capture: &OfferedCapture) -> String {
    let is_all = capture.snap_len >= SNAP_LEN;
    if is_all { String::new() } else { format!("the first {} of each packet", capture.snap_len) }
}

/// Each link type of a capture once.
pub(crate) fn link_types(capture: &OfferedCapture) -> Vec<LinkType> {
    let mut types: Vec<_> =
        capture.interfaces.iter().map(|interface| LinkType(interface.link_type)).collect();
    types.sort_unstable_by_key(|link_type| link_type.0);
    types.dedup();
    types
}

fn capture_json(capture: &OfferedCapture) -> Value {
    let interface = |interface: &OfferedInterface| json!({"name": interface.name, "description": interface.description, "link_type": link_type_json(LinkType(interface.link_type))});
    json!({
        "name": format!("{TAP}{}", capture.name),
        "kind": "tap",
        "interfaces": capture.interfaces.iter().map(interface).collect::<Vec<_>>(),
        "forced_filter": capture.forced_filter,
        "snap_len": capture.snap_len,
    })
}

fn to_text(interface: &InterfaceInfo) -> String {
    let mut text = format!("{}: {}  {}\n", interface.index, interface.name, state(interface).join(", "));
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "     {name:<12}{value}");
        }
    };
    row("description", interface.description.clone());
    row("link type", link(interface).join(", "));
    row("addresses", joined(interface.addresses.iter().map(|(address, len)| format!("{address}/{len}"))));
    row("time stamps", joined(interface.timestamps.iter().map(|source| source.name().to_owned())));
    row("xdp", interface.xdp.map(xdp_text).unwrap_or_default());
    row("captured by", joined(interface.captured_by.iter().map(capturer_text)));
    text
}

/// The program that has the place of `-i xdp:`.
fn xdp_text(program: XdpProgram) -> String {
    let place = match program.mode {
        1 => ", in the driver",
        2 => ", in the stack",
        3 => ", in the adapter",
        _ => "",
    };
    format!("program {}{place}: -i xdp: cannot attach another one", program.id)
}

fn joined(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

fn state(interface: &InterfaceInfo) -> Vec<String> {
    let flags = [
        (interface.is_up, "up"),
        (!interface.is_up, "down"),
        (interface.is_up && interface.is_running, "running"),
        (interface.is_up && !interface.is_running, "no carrier"),
        (interface.is_loopback, "loopback"),
        (interface.is_wireless, "wireless"),
        (interface.is_promiscuous, "promiscuous"),
    ];
    let mut words: Vec<String> =
        flags.iter().filter(|(set, _)| *set).map(|(_, word)| (*word).to_owned()).collect();
    words.extend(interface.speed.map(speed_text));
    words.extend(
        interface.driver.as_ref().map(|driver| driver.driver.clone()).filter(|name| !name.is_empty()),
    );
    words
}

fn link(interface: &InterfaceInfo) -> Vec<String> {
    let mut words = vec![link_type(interface.link_type), format!("MTU {}", interface.mtu)];
    if !interface.hardware_address.is_empty() {
        words.push(hardware_address(&interface.hardware_address));
    }
    words
}

fn link_type(link_type: LinkType) -> String {
    let name = link_type.name().map_or_else(|| link_type.0.to_string(), str::to_owned);
    let description = link_type.description().map_or(String::new(), |text| format!(" ({text})"));
    name + description.as_str()
}

fn link_type_json(link_type: LinkType) -> Value {
    json!({"number": link_type.0, "name": link_type.name(), "description": link_type.description()})
}

fn hardware_address(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

fn speed_text(bits: u64) -> String {
    match bits {
        _ if bits >= 1_000_000_000 && bits.is_multiple_of(100_000_000) => {
            format!("{} Gbit/s", bits as f64 / 1e9)
        }
        _ => format!("{} Mbit/s", bits as f64 / 1e6),
    }
}

fn capturer_text(capturer: &CapturingProcess) -> String {
    let place = if capturer.is_everywhere { ", on all interfaces" } else { "" };
    match &capturer.process {
        Some(holder) => format!("{} (pid {}, uid {}{place})", holder.name, holder.pid, capturer.uid),
        None => format!("a process of uid {}{place} (root may see which)", capturer.uid),
    }
}

fn to_json(interface: &InterfaceInfo) -> Value {
    json!({
        "index": interface.index,
        "name": interface.name,
        "description": interface.description,
        "kind": interface.kind,
        "link_type": link_type_json(interface.link_type),
        "up": interface.is_up,
        "running": interface.is_running,
        "loopback": interface.is_loopback,
        "wireless": interface.is_wireless,
        "promiscuous": interface.is_promiscuous,
        "mtu": interface.mtu,
        "hardware_address": hardware_address(&interface.hardware_address),
        "addresses": interface.addresses.iter()
            .map(|(address, len)| json!({"address": address.to_string(), "prefix_length": len})).collect::<Vec<_>>(),
        "speed_bits_per_second": interface.speed,
        "driver": interface.driver.as_ref().map(|driver| json!({"name": driver.driver, "version": driver.version,
            "firmware": driver.firmware, "bus": driver.bus})),
        "time_stamp_types": interface.timestamps.iter().map(|source| source.name()).collect::<Vec<_>>(),
        "xdp": interface.xdp.map(|program| json!({"id": program.id, "mode": program.mode})),
        "captured_by": interface.captured_by.iter().map(|capturer| json!({
            "pid": capturer.process.as_ref().map(|holder| holder.pid),
            "name": capturer.process.as_ref().map(|holder| holder.name.clone()),
            "uid": capturer.uid,
            "all_interfaces": capturer.is_everywhere,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_readable() {
        let texts: Vec<String> =
            [10_000_000, 1_000_000_000, 2_500_000_000, 100_000_000_000].map(speed_text).into();
        assert_eq!(texts, ["10 Mbit/s", "1 Gbit/s", "2.5 Gbit/s", "100 Gbit/s"]);
    }
}
