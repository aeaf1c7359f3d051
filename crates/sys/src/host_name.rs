//! The name of a host by its address: getnameinfo(3).

use std::ffi::CStr;
use std::mem::size_of;
use std::net::IpAddr;

/// Room for a name: `NI_MAXHOST` of netdb.h.
const NAME_LEN_MAX: usize = 1025;

/// The name of `address` as the system's name services have it (files, DNS, ...); `None` if it has none. May wait for the
/// network, and tells name servers which address is looked at.
pub fn host_name(address: IpAddr) -> Option<String> {
    match address {
        IpAddr::V4(v4) => {
            let address = libc::in_addr { s_addr: u32::from_ne_bytes(v4.octets()) };
            let socket_address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: address,
                sin_zero: [0; 8],
            };
            look_up(&socket_address)
        }
        IpAddr::V6(v6) => {
            let socket_address = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.octets() },
                sin6_scope_id: 0,
            };
            look_up(&socket_address)
        }
    }
}

/// `T` is one of the socket address structures, beginning with its family.
fn look_up<T>(address: &T) -> Option<String> {
    let mut name: [libc::c_char; NAME_LEN_MAX] = [0; NAME_LEN_MAX];
    // SAFETY: pointer and length describe `address`, which the call only reads, and `name`, which it writes at most
    // `NAME_LEN_MAX` bytes to; no service name is asked for.
    let result = unsafe {
        libc::getnameinfo(
            std::ptr::from_ref(address).cast(),
            size_of::<T>() as libc::socklen_t,
            name.as_mut_ptr(),
            NAME_LEN_MAX as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    if result != 0 {
        return None;
    }
    // SAFETY: on success the buffer holds a C string; its last byte was 0 from the start in any case.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_names_have_none() {
        // TEST-NET-1 and the documentation prefix (RFC 5737, RFC 3849): no server names them.
        assert_eq!(host_name("192.0.2.1".parse().unwrap()), None);
        assert_eq!(host_name("2001:db8::1".parse().unwrap()), None);
    }

    #[test]
    fn this_machine_has_a_name() {
        let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        if hosts.lines().any(|line| line.starts_with("127.0.0.1")) {
            assert!(host_name("127.0.0.1".parse().unwrap()).is_some());
        } else {
            eprintln!("skipped: /etc/hosts does not name 127.0.0.1");
        }
    }
}
