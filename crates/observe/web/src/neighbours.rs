//! The kernel's table of neighbours: the MAC address of a host of the same network.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;

/// Neighbours of IPv4, proc_net(5): address, hardware type, flags, MAC address, mask, interface.
const TABLE: &str = "/proc/net/arp";
/// The most bytes of it that are read.
const LEN_MAX: u64 = 1 << 20;

/// The MAC address of a host, and the interface behind which it is, as this system knows them now.
pub(crate) fn station(host: IpAddr) -> Option<[String; 2]> {
    let mut text = String::new();
    File::open(TABLE).ok()?.take(LEN_MAX).read_to_string(&mut text).ok()?;
    find(&text, host)
}

/// The octets of a MAC address of the table.
pub(crate) fn octets(station: &str) -> Option<[u8; 6]> {
    let octets: Option<Vec<u8>> =
        station.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect();
    octets?.try_into().ok()
}

fn find(table: &str, host: IpAddr) -> Option<[String; 2]> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, _, flags, station, _, interface] = words[..] else { return None };
        // Without the flag of a complete entry the address is zeros.
        let is_complete = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()? & 0x2 != 0;
        (is_complete && address.parse() == Ok(host)).then(|| [station.to_owned(), interface.to_owned()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_that_answered_have_an_address() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.0.0.1         0x1         0x2         02:00:00:00:00:01     *        eth0\n\
            10.0.0.2         0x1         0x0         00:00:00:00:00:00     *        eth0\n";
        let of = |host: &str| find(table, host.parse().expect("an address"));
        assert_eq!(of("10.0.0.1"), Some(["02:00:00:00:00:01".to_owned(), "eth0".to_owned()]));
        assert_eq!(octets("02:00:00:00:00:01"), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!((octets("02:00"), octets("x")), (None, None));
        assert_eq!((of("10.0.0.2"), of("10.0.0.3"), find("x", [10, 0, 0, 1].into())), (None, None, None));
    }
}
