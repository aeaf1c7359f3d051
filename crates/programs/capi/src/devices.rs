//! Devices: `pcap_findalldevs`, `pcap_lookupdev`, `pcap_lookupnet`.
//!
//! ```text
//! getifaddrs(3) --by name--> Device { flags, addresses }   the best first: running before not, "any" and loopback last of these
//! daemon --captures that we may read--> tap:NAME           last, so that programs that take the first device get an interface
//! ```
//!
//! A daemon that does not answer is waited for no longer than [`LIST_TIMEOUT`]: every program that lists devices asks
//! it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapline_tap_client::protocol::OfferedCapture;

use crate::af_packet::ANY;
use crate::failure::{Failure, guard_into, text_at};
use crate::raw::{Device, DeviceAddress};
use crate::shared::SHARED;
use crate::stored;
use crate::{memory, shared};

const LOOPBACK: u32 = 0x01;
const UP: u32 = 0x02;
const RUNNING: u32 = 0x04;
const WIRELESS: u32 = 0x08;
const CONNECTED: u32 = 0x10;
const DISCONNECTED: u32 = 0x20;
const NOT_APPLICABLE: u32 = 0x30;
/// Both bits of the connection's state.
const CONNECTION: u32 = 0x30;

/// `IFF_LOWER_UP` of linux/if.h: there is a carrier.
const LOWER_UP: u32 = 1 << 16;

/// For how long a daemon may think about each answer.
const LIST_TIMEOUT: Duration = Duration::from_millis(200);

/// A device, before it is given to C.
struct DeviceEntry {
    name: String,
    description: Option<String>,
    flags: u32,
    addresses: Vec<FoundAddress>,
}

/// Socket addresses as bytes.
#[derive(Default)]
struct FoundAddress {
    addr: Vec<u8>,
    netmask: Vec<u8>,
    broadaddr: Vec<u8>,
    dstaddr: Vec<u8>,
}

/// All devices, the best first.
fn find() -> Result<Vec<DeviceEntry>, Failure> {
    let mut devices = interfaces()?;
    devices.push(DeviceEntry {
        name: ANY.to_owned(),
        description: Some("Pseudo-device that captures on all interfaces".to_owned()),
        flags: UP | RUNNING | NOT_APPLICABLE,
        addresses: Vec::new(),
    });
    // Stable: interfaces that are as good as each other stay in the kernel's order.
    devices.sort_by_key(|device| rank(&device.name, device.flags));
    devices.extend(captures());
    Ok(devices)
}

/// Captures of the daemon that we may read; none if there is no daemon, or it says nothing.
fn captures() -> Vec<DeviceEntry> {
    let found = |offer: OfferedCapture| {
        let interfaces: Vec<&str> =
            offer.interfaces.iter().map(|interface| interface.name.as_str()).collect();
        let mut description = format!("Capture of tapline serve on {}", interfaces.join(", "));
        if !offer.forced_filter.is_empty() {
            description += &format!(", only {}", offer.forced_filter);
        }
        DeviceEntry {
            name: format!("{SHARED}{}", offer.name),
            description: Some(description),
            flags: UP | RUNNING | NOT_APPLICABLE,
            addresses: Vec::new(),
        }
    };
    shared::captures(LIST_TIMEOUT).into_iter().map(found).collect()
}

/// The lower, the better; libpcap's order.
fn rank(name: &str, flags: u32) -> u32 {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let mut rank = name[name.len() - digits..].parse().unwrap_or(0) & 0x07ff_ffff;
    let mut add = |bit: u32, is_worse: bool| rank |= if is_worse { bit } else { 0 };
    add(0x8000_0000, flags & RUNNING == 0);
    add(0x4000_0000, flags & UP == 0);
    add(0x2000_0000, flags & WIRELESS == 0 && flags & CONNECTION == DISCONNECTED);
    add(0x1000_0000, flags & LOOPBACK != 0);
    add(0x0800_0000, name == ANY);
    rank
}

fn interfaces() -> Result<Vec<DeviceEntry>, Failure> {
    let mut list = ptr::null_mut();
    // SAFETY: a place for a pointer.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(Failure::system("getifaddrs", &io::Error::last_os_error()));
    }
    let mut devices: Vec<DeviceEntry> = Vec::new();
    let mut next = list;
    // SAFETY: a list that getifaddrs(3) made and that is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: each entry has a name that ends in a zero byte.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        // Old aliases, eth0:1, are not devices of their own.
        let name = name.split(':').next().unwrap_or_default();
        let place = devices.iter().position(|device| device.name == name).unwrap_or_else(|| {
            let flags = flags(name, entry.ifa_flags);
            devices.push(DeviceEntry {
                name: name.to_owned(),
                description: None,
                flags,
                addresses: Vec::new(),
            });
            devices.len() - 1
        });
        // SAFETY: the entry is one of getifaddrs(3).
        devices[place].addresses.extend(unsafe { address(entry) });
    }
    // SAFETY: the list came from getifaddrs(3), and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(devices)
}

fn flags(name: &str, kernel: u32) -> u32 {
    let has = |flag: c_int| kernel & flag as u32 != 0;
    let class = Path::new("/sys/class/net").join(name);
    let is_wireless = class.join("wireless").exists() || class.join("phy80211").exists();
    let connection = match () {
        () if has(libc::IFF_LOOPBACK) => NOT_APPLICABLE,
        () if kernel & LOWER_UP != 0 => CONNECTED,
        () => DISCONNECTED,
    };
    let mut flags = connection;
    let mut add = |flag: u32, is_set: bool| flags |= if is_set { flag } else { 0 };
    add(LOOPBACK, has(libc::IFF_LOOPBACK));
    add(UP, has(libc::IFF_UP));
    add(RUNNING, has(libc::IFF_RUNNING));
    add(WIRELESS, is_wireless);
    flags
}

/// # Safety
/// The entry came from getifaddrs(3), whose list was not freed.
unsafe fn address(entry: &libc::ifaddrs) -> Option<FoundAddress> {
    let has = |flag: c_int| entry.ifa_flags & flag as u32 != 0;
    // SAFETY: each is null or an address, here and below.
    let bytes = |address: *const libc::sockaddr| unsafe { socket_address(address) };
    let addr = bytes(entry.ifa_addr);
    if addr.is_empty() {
        return None;
    }
    let other = bytes(entry.ifa_ifu);
    Some(FoundAddress {
        addr,
        netmask: bytes(entry.ifa_netmask),
        broadaddr: if has(libc::IFF_BROADCAST) { other.clone() } else { Vec::new() },
        dstaddr: if has(libc::IFF_POINTOPOINT) { other } else { Vec::new() },
    })
}

/// # Safety
/// `address` is null or a socket address as long as its family says.
unsafe fn socket_address(address: *const libc::sockaddr) -> Vec<u8> {
    if address.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    let len = match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
        libc::AF_PACKET => size_of::<libc::sockaddr_ll>(),
        _ => size_of::<libc::sockaddr>(),
    };
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(address.cast::<u8>(), len) }.to_vec()
}

/// Copies the list to memory of malloc(3), from its end.
fn to_c(devices: &[DeviceEntry]) -> Result<*mut Device, Failure> {
    let mut first = ptr::null_mut();
    for device in devices.iter().rev() {
        let copied = memory::copy(&[DeviceCopy {
            next: first,
            name: memory::text(&device.name),
            description: device.description.as_deref().map_or(ptr::null_mut(), memory::text),
            addresses: addresses_to_c(&device.addresses),
            flags: device.flags,
        }]);
        if copied.is_null() {
            return Err(Failure::error("malloc: Cannot allocate memory"));
        }
        first = copied.cast::<Device>();
    }
    Ok(first)
}

/// [`Device`] as something that may be copied.
#[derive(Clone, Copy)]
#[repr(C)]
struct DeviceCopy {
    next: *mut Device,
    name: *mut c_char,
    description: *mut c_char,
    addresses: *mut DeviceAddress,
    flags: u32,
}

fn addresses_to_c(addresses: &[FoundAddress]) -> *mut DeviceAddress {
    /// [`DeviceAddress`] as something that may be copied: the next one, and four addresses.
    type AddressCopy = [*mut u8; 5];
    let bytes = |bytes: &[u8]| if bytes.is_empty() { ptr::null_mut() } else { memory::copy(bytes) };
    let mut first: *mut AddressCopy = ptr::null_mut();
    for address in addresses.iter().rev() {
        let FoundAddress { addr, netmask, broadaddr, dstaddr } = address;
        first =
            memory::copy(&[[first.cast(), bytes(addr), bytes(netmask), bytes(broadaddr), bytes(dstaddr)]]);
        if first.is_null() {
            break;
        }
    }
    first.cast()
}

/// `pcap_findalldevs(3PCAP)`. The list is freed by `pcap_freealldevs`.
///
/// # Safety
/// `list` is a place for a pointer; `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_findalldevs(list: *mut *mut Device, errbuf: *mut c_char) -> c_int {
    let body = || {
        let devices = find().and_then(|devices| to_c(&devices));
        // SAFETY: as the caller promises. After an error there is no list to free.
        unsafe { *list = *devices.as_ref().unwrap_or(&ptr::null_mut()) };
        devices.map(|_| 0)
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |code| code, body) }
}

/// `pcap_freealldevs(3PCAP)`.
///
/// # Safety
/// `list` is null or came from `pcap_findalldevs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_freealldevs(list: *mut Device) {
    let mut next = list;
    // SAFETY: as the caller promises; each piece came from malloc(3).
    unsafe {
        while !next.is_null() {
            let device = next.read();
            let mut address = device.addresses;
            while !address.is_null() {
                let DeviceAddress { next, addr, netmask, broadaddr, dstaddr } = address.read();
                [addr, netmask, broadaddr, dstaddr].into_iter().for_each(|part| memory::free(part));
                memory::free(address);
                address = next;
            }
            memory::free(device.name);
            memory::free(device.description);
            memory::free(next);
            next = device.next;
        }
    }
}

/// `pcap_init` was called: names may be UTF-8 then, which `pcap_lookupdev` cannot promise.
static LOOKUPDEV_REFUSED: AtomicBool = AtomicBool::new(false);

/// From now on `pcap_lookupdev` fails.
pub(crate) fn refuse_lookupdev() {
    LOOKUPDEV_REFUSED.store(true, Ordering::Relaxed);
}

/// `pcap_lookupdev(3PCAP)`: the first device, until the thread's next call.
///
/// # Safety
/// `errbuf` has room for 256 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char {
    thread_local! {
        static NAME: Cell<[c_char; libc::IFNAMSIZ + 1]> = const { Cell::new([0; libc::IFNAMSIZ + 1]) };
    }
    let body = || {
        if LOOKUPDEV_REFUSED.load(Ordering::Relaxed) {
            return Err(Failure::error(
                "pcap_lookupdev() is deprecated and is not supported in programs calling pcap_init()",
            ));
        }
        let devices = find()?;
        let first = devices.first().filter(|device| device.flags & LOOPBACK == 0);
        let first = first.ok_or_else(|| Failure::error("no suitable device found"))?;
        let mut name = [0; libc::IFNAMSIZ + 1];
        for (place, byte) in name[..libc::IFNAMSIZ].iter_mut().zip(first.name.bytes()) {
            *place = byte as c_char;
        }
        Ok(NAME.with(|kept| {
            kept.set(name);
            kept.as_ptr().cast()
        }))
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |_| ptr::null_mut(), body) }
}

/// `pcap_lookupnet(3PCAP)`: an interface's IPv4 network and mask, in network byte order; 0 for "any".
///
/// # Safety
/// `device` is null or ends in a zero byte; `network` and `mask` are places for numbers; `errbuf` has room for 256
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_lookupnet(
    device: *const c_char,
    network: *mut u32,
    mask: *mut u32,
    errbuf: *mut c_char,
) -> c_int {
    let body = || {
        // SAFETY: as the caller promises.
        let device = unsafe { text_at(device) }.unwrap_or_else(|| ANY.to_owned());
        // A store has no network, as the device of all interfaces has none.
        let has_none = device == ANY || stored::name_of(&device).is_some();
        let found = if has_none { Ok((0, 0)) } else { network_of(&device) };
        let (address, netmask) = *found.as_ref().unwrap_or(&(0, 0));
        // SAFETY: as the caller promises.
        unsafe { (*network, *mask) = (address & netmask, netmask) };
        found.map(|_| 0)
    };
    // SAFETY: as the caller promises.
    unsafe { guard_into(errbuf, |code| code, body) }
}

/// The first IPv4 address of an interface and its mask, as they lie in memory.
fn network_of(device: &str) -> Result<(u32, u32), Failure> {
    let devices = interfaces()?;
    let Some(found) = devices.iter().find(|found| found.name == device) else {
        return Err(Failure::error(format!("{device}: No such device")));
    };
    let family = (libc::AF_INET as u16).to_ne_bytes();
    let is_ipv4 = |address: &&FoundAddress| address.addr.starts_with(&family);
    let Some(address) = found.addresses.iter().find(is_ipv4) else {
        return Err(Failure::error(format!("{device}: no IPv4 address assigned")));
    };
    let number = |bytes: &[u8]| {
        bytes.get(4..8).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    Ok((number(&address.addr), number(&address.netmask)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_device_comes_first() {
        let mut names = [
            ("lo", LOOPBACK | UP | RUNNING | NOT_APPLICABLE),
            ("eth3", 0),
            ("eth2", UP | DISCONNECTED),
            ("any", UP | RUNNING | NOT_APPLICABLE),
            ("eth1", UP | RUNNING | CONNECTED),
            ("eth0", UP | RUNNING | CONNECTED),
        ];
        names.sort_by_key(|(name, flags)| rank(name, *flags));
        assert_eq!(names.map(|(name, _)| name), ["eth0", "eth1", "any", "lo", "eth2", "eth3"]);
    }

    #[test]
    fn loopback_is_found_with_its_network() {
        let devices = find().expect("a list");
        let loopback = devices.iter().find(|device| device.flags & LOOPBACK != 0).expect("loopback");
        assert_eq!(loopback.flags & CONNECTION, NOT_APPLICABLE);
        if loopback.addresses.iter().any(|address| address.addr[0] == libc::AF_INET as u8) {
            assert_eq!(network_of(&loopback.name).expect("a network").1, u32::from_ne_bytes([255, 0, 0, 0]));
        }
        let refused = network_of("no-such-device").expect_err("none");
        assert!(refused.text.contains("No such device"), "{}", refused.text);
    }
}
