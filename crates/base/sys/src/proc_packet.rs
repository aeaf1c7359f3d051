//! The captures of this machine: the packet sockets of this network namespace, and the processes that hold them.
//!
//! ```text
//! /proc/thread-self/net/packet := header line, then one line for each socket:
//!     sk RefCnt Type Proto Iface R Rmem User Inode         hexadecimal: sk, Proto; the others decimal
//! /proc/PID/fd/N              -> socket:[INODE]
//! ```

use std::collections::HashMap;
use std::fs;

/// An open packet socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketSocketEntry {
    /// The interface it is bound to; 0 for all.
    pub if_index: u32,
    /// The EtherType it receives; 3 (`ETH_P_ALL`) is a capture.
    pub protocol: u16,
    /// Whether it receives now.
    pub is_running: bool,
    /// The user id of its owner.
    pub uid: u32,
    /// The number of the socket, by which its holders are found.
    pub inode: u64,
}

/// A process that holds a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketHolder {
    /// Process identifier.
    pub pid: u32,
    /// Name of the process, up to 15 bytes.
    pub name: String,
}

/// The packet sockets of the calling thread's network namespace; empty if the kernel does not list them.
pub fn sockets() -> Vec<PacketSocketEntry> {
    let table = fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
    table.lines().skip(1).filter_map(parse_line).collect()
}

/// The processes that hold the sockets of these inodes. Processes whose descriptors we may not see are left out.
pub fn holders(inodes: &[u64]) -> HashMap<u64, Vec<SocketHolder>> {
    let mut found: HashMap<u64, Vec<SocketHolder>> = HashMap::new();
    for pid in processes() {
        for inode in socket_inodes(pid).filter(|inode| inodes.contains(inode)) {
            let of_socket = found.entry(inode).or_default();
            if of_socket.iter().all(|holder| holder.pid != pid) {
                of_socket.push(SocketHolder { pid, name: name_of(pid) });
            }
        }
    }
    found
}

fn parse_line(line: &str) -> Option<PacketSocketEntry> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let protocol = u16::from_str_radix(words.next()?, 16).ok()?;
    let if_index = words.next()?.parse().ok()?;
    let is_running = words.next()? == "1";
    let uid = words.nth(1)?.parse().ok()?;
    let inode = words.next()?.parse().ok()?;
    Some(PacketSocketEntry { if_index, protocol, is_running, uid, inode })
}

fn processes() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok())
}

fn socket_inodes(pid: u32) -> impl Iterator<Item = u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    })
}

fn name_of(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table() {
        let line = "0000000013d18afa 3      3    0003   7     1 0      1000   11803 ";
        let entry = PacketSocketEntry { if_index: 7, protocol: 3, is_running: true, uid: 1000, inode: 11803 };
        assert_eq!(parse_line(line), Some(entry));
        assert_eq!(parse_line("sk RefCnt Type"), None);
        assert_eq!(parse_line(""), None);
    }
}
