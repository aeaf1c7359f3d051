//! Names of hosts, networks, ports and protocols as numbers: the functions of `pcap/namedb.h`.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int};
use std::ptr;

use libc::FILE;
use tapline_filter::{Resolver, SystemNames};

use crate::failure::{guard, text_at};
use crate::memory;

/// `PROTO_UNDEF`: no protocol, or more than one.
const UNDEFINED: c_int = -1;
/// The longest name that a `pcap_etherent` holds, with its zero byte.
const STATION_NAME_LEN: usize = 122;

/// An entry of [`eproto_db`].
#[repr(C)]
pub struct EtherProtocol {
    name: *const c_char,
    number: u16,
}

// SAFETY: the names are constants of the program.
unsafe impl Sync for EtherProtocol {}

const fn protocol(name: &'static std::ffi::CStr, number: u16) -> EtherProtocol {
    EtherProtocol { name: name.as_ptr(), number }
}

/// EtherTypes by name, up to an entry without a name. Old programs read it.
#[unsafe(no_mangle)]
pub static eproto_db: [EtherProtocol; 13] = [
    protocol(c"aarp", 0x80f3),
    protocol(c"arp", 0x0806),
    protocol(c"atalk", 0x809b),
    protocol(c"decnet", 0x6003),
    protocol(c"ip", 0x0800),
    protocol(c"ip6", 0x86dd),
    protocol(c"lat", 0x6004),
    protocol(c"loopback", 0x9000),
    protocol(c"mopdl", 0x6001),
    protocol(c"moprc", 0x6002),
    protocol(c"rarp", 0x8035),
    protocol(c"sca", 0x6007),
    EtherProtocol { name: ptr::null(), number: 0 },
];

unsafe extern "C" {
    fn gethostbyname(name: *const c_char) -> *mut libc::hostent;
}

/// Runs a body on a name; `fallback` where there is none.
///
/// # Safety
/// `name` is null or ends in a zero byte.
unsafe fn on_name<T: Copy>(name: *const c_char, fallback: T, body: impl FnOnce(&str) -> T) -> T {
    guard(fallback, || {
        // SAFETY: as the caller promises.
        unsafe { text_at(name) }.map_or(fallback, |name| body(&name))
    })
}

/// `pcap_nametoaddr`: IPv4 addresses in host byte order, up to a null pointer, until the next call of gethostbyname(3).
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoaddr(name: *const c_char) -> *mut *mut u32 {
    // SAFETY: as the caller promises.
    let found = unsafe { gethostbyname(name).as_ref() };
    let Some(found) = found.filter(|found| found.h_addrtype == libc::AF_INET && found.h_length == 4) else {
        return ptr::null_mut();
    };
    let list = found.h_addr_list.cast::<*mut u32>();
    let mut next = list;
    // SAFETY: gethostbyname(3) gives a list of addresses of 4 bytes that ends in a null pointer, in memory of its own
    // that may be written.
    unsafe {
        while !(*next).is_null() {
            (*next).write_unaligned(u32::from_be((*next).read_unaligned()));
            next = next.add(1);
        }
    }
    list
}

/// `pcap_nametoaddrinfo`: what getaddrinfo(3) finds for TCP; freed by freeaddrinfo(3).
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoaddrinfo(name: *const c_char) -> *mut libc::addrinfo {
    // SAFETY: all-zero bytes are valid hints.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    (hints.ai_family, hints.ai_socktype, hints.ai_protocol) =
        (libc::AF_UNSPEC, libc::SOCK_STREAM, libc::IPPROTO_TCP);
    let mut found = ptr::null_mut();
    // SAFETY: the name ends in a zero byte; hints and the place for the answer live through the call.
    let result = unsafe { libc::getaddrinfo(name, ptr::null(), &hints, &mut found) };
    if result == 0 { found } else { ptr::null_mut() }
}

/// `pcap_nametonetaddr`: a network's number in host byte order, 0 if it is not known.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametonetaddr(name: *const c_char) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { on_name(name, 0, |name| SystemNames::default().network(name).unwrap_or(0)) }
}

/// A port by name or number, and the protocol that it is for.
fn port_of(name: &str) -> Option<(c_int, c_int)> {
    if let Ok(number) = name.parse::<u16>() {
        return Some((number.into(), UNDEFINED));
    }
    let found = SystemNames::default().port(name);
    match (found.tcp, found.udp) {
        (Some(tcp), Some(udp)) if tcp == udp => Some((tcp.into(), UNDEFINED)),
        (Some(tcp), _) => Some((tcp.into(), libc::IPPROTO_TCP)),
        (None, Some(udp)) => Some((udp.into(), libc::IPPROTO_UDP)),
        (None, None) => None,
    }
}

/// `pcap_nametoport`: 1 if there is such a port.
///
/// # Safety
/// `name` ends in a zero byte; `port` and `protocol` are places for numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoport(
    name: *const c_char,
    port: *mut c_int,
    protocol: *mut c_int,
) -> c_int {
    let body = |name: &str| {
        let Some(found) = port_of(name) else { return 0 };
        // SAFETY: as the caller promises.
        unsafe { (*port, *protocol) = found };
        1
    };
    // SAFETY: as the caller promises.
    unsafe { on_name(name, 0, body) }
}

/// `pcap_nametoportrange`: `a-b`, or one port.
///
/// # Safety
/// As for [`pcap_nametoport`], with two ports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoportrange(
    name: *const c_char,
    first: *mut c_int,
    last: *mut c_int,
    protocol: *mut c_int,
) -> c_int {
    let body = |name: &str| {
        let (from, to) = name.split_once('-').unwrap_or((name, name));
        let (Some(from), Some(to)) = (port_of(from), port_of(to)) else { return 0 };
        // SAFETY: as the caller promises.
        unsafe {
            (*first, *last) = (from.0, to.0);
            *protocol = if from.1 == to.1 { from.1 } else { UNDEFINED };
        }
        1
    };
    // SAFETY: as the caller promises.
    unsafe { on_name(name, 0, body) }
}

/// `pcap_nametoproto`: an IP protocol's number.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoproto(name: *const c_char) -> c_int {
    let body = |name: &str| SystemNames::default().protocol(name).map_or(UNDEFINED, c_int::from);
    // SAFETY: as the caller promises.
    unsafe { on_name(name, UNDEFINED, body) }
}

/// `pcap_nametoeproto`: an EtherType by libpcap's name.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametoeproto(name: *const c_char) -> c_int {
    let body = |name: &str| {
        let is_it = |entry: &&EtherProtocol| {
            // SAFETY: the names are constants that end in zero bytes, but for the null of the last entry.
            unsafe { text_at(entry.name) }.is_some_and(|known| known == name)
        };
        eproto_db.iter().find(is_it).map_or(UNDEFINED, |entry| c_int::from(entry.number))
    };
    // SAFETY: as the caller promises.
    unsafe { on_name(name, UNDEFINED, body) }
}

/// `pcap_nametollc`: an IEEE 802.2 service access point by name.
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_nametollc(name: *const c_char) -> c_int {
    let body = |name: &str| match name {
        "iso" => 0xfe,
        "stp" => 0x42,
        "ipx" => 0xe0,
        "netbeui" => 0xf0,
        _ => UNDEFINED,
    };
    // SAFETY: as the caller promises.
    unsafe { on_name(name, UNDEFINED, body) }
}

/// Six bytes out of hexadecimal digits, one or two each, with `:`, `-` or `.` between them or nothing.
fn station_address(text: &str) -> [u8; 6] {
    let mut address = [0; 6];
    let mut bytes = text.bytes().peekable();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    for place in &mut address {
        while bytes.next_if(|byte| b":-.".contains(byte)).is_some() {}
        let Some(high) = bytes.next().and_then(digit) else { break };
        *place = match bytes.next_if(u8::is_ascii_hexdigit).and_then(digit) {
            Some(low) => high << 4 | low,
            None => high,
        };
    }
    address
}

/// `pcap_ether_aton`: six bytes, freed by free(3).
///
/// # Safety
/// `text` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_ether_aton(text: *const c_char) -> *mut u8 {
    // SAFETY: as the caller promises.
    unsafe { on_name(text, ptr::null_mut(), |text| memory::copy(&station_address(text))) }
}

/// `pcap_ether_hostton`: a host's six bytes by `/etc/ethers`, freed by free(3).
///
/// # Safety
/// `name` ends in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_ether_hostton(name: *const c_char) -> *mut u8 {
    let body = |name: &str| {
        SystemNames::default().station(name).map_or(ptr::null_mut(), |address| memory::copy(&address))
    };
    // SAFETY: as the caller promises.
    unsafe { on_name(name, ptr::null_mut(), body) }
}

/// `struct pcap_etherent`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Station {
    addr: [u8; 6],
    name: [c_char; STATION_NAME_LEN],
}

/// `pcap_next_etherent`: the next line of a file like `/etc/ethers`, until the thread's next call.
///
/// # Safety
/// `file` is an open stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pcap_next_etherent(file: *mut FILE) -> *mut Station {
    thread_local! {
        static STATION: Cell<Station> = const { Cell::new(Station { addr: [0; 6], name: [0; STATION_NAME_LEN] }) };
    }
    guard(ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        while let Some(line) = unsafe { next_line(file) } {
            let Some(found) = station(&line) else { continue };
            return STATION.with(|kept| {
                kept.set(found);
                kept.as_ptr()
            });
        }
        ptr::null_mut()
    })
}

/// # Safety
/// `file` is an open stream.
unsafe fn next_line(file: *mut FILE) -> Option<String> {
    let mut line = [0 as c_char; 1024];
    // SAFETY: pointer and length describe `line`; fgets(3) ends what it writes there with a zero byte.
    let read = unsafe { libc::fgets(line.as_mut_ptr(), line.len() as c_int, file) };
    // SAFETY: as above.
    (!read.is_null()).then(|| unsafe { text_at(line.as_ptr()) })?
}

fn station(line: &str) -> Option<Station> {
    let line = line.split('#').next()?;
    let mut words = line.split_whitespace();
    let (address, name) = (words.next()?, words.next()?);
    if !address.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut station = Station { addr: station_address(address), name: [0; STATION_NAME_LEN] };
    let text = CString::new(name).ok()?;
    for (place, byte) in station.name[..STATION_NAME_LEN - 1].iter_mut().zip(text.as_bytes()) {
        *place = *byte as c_char;
    }
    Some(station)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn station_addresses_in_all_forms() {
        let expected = [0x00, 0x1b, 0x2c, 0x03, 0x04, 0x05];
        for text in ["0:1b:2c:3:4:5", "00-1b-2c-03-04-05", "001b.2c03.0405", "001b2c030405"] {
            assert_eq!(station_address(text), expected, "{text}");
        }
        assert_eq!(station_address("zz"), [0; 6]);
    }

    #[test]
    fn lines_of_ethers() {
        let found = station("0:1:2:3:4:5\thost # a comment").expect("a station");
        assert_eq!((found.addr, found.name[0], found.name[4]), ([0, 1, 2, 3, 4, 5], b'h' as c_char, 0));
        assert!(
            station("# nothing").is_none() && station("0:1:2:3:4:5").is_none() && station("host x").is_none()
        );
        assert!(station(&format!("0:1:2:3:4:5 {}", "x".repeat(500))).is_some());
    }

    #[test]
    fn ports_of_both_protocols_and_numbers() {
        assert_eq!(port_of("80"), Some((80, UNDEFINED)));
        assert_eq!(port_of("no-such-service"), None);
        assert_eq!(size_of::<EtherProtocol>() * eproto_db.len(), 208);
    }
}
