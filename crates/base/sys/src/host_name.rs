//! Names of addresses, from where the system has them: getnameinfo(3) with `/etc/nsswitch.conf`, `/etc/hosts`, the DNS.

use std::net::{IpAddr, SocketAddr};

use libc::{c_char, sockaddr_in, sockaddr_in6, socklen_t};

/// Longest name that getnameinfo(3) gives, with its zero byte (`NI_MAXHOST` of `netdb.h`).
const NAME_MAX: usize = 1025;

/// The name of `address`, or `None` if the system has none or could not find out.
///
/// Blocks as long as the resolver does: with a DNS server that is silent, some ten seconds (`timeout` and `attempts` in
/// resolv.conf(5)). Sends packets; servers learn the address.
pub fn host_name(address: IpAddr) -> Option<String> {
    let mut name = [0 as c_char; NAME_MAX];
    match SocketAddr::new(address, 0) {
        SocketAddr::V4(address) => {
            let socket_address = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            ask(&socket_address, &mut name)?;
        }
        SocketAddr::V6(address) => {
            let socket_address = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: 0,
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: 0,
            };
            ask(&socket_address, &mut name)?;
        }
    }
    let bytes = name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8(bytes).ok()
}

/// Socket addresses as C lays them out, with their family in front.
trait SocketAddress {}
impl SocketAddress for sockaddr_in {}
impl SocketAddress for sockaddr_in6 {}

fn ask<A: SocketAddress>(address: &A, name: &mut [c_char; NAME_MAX]) -> Option<()> {
    // SAFETY: `address` is a sockaddr_in or sockaddr_in6 (the only types with the trait), whose family says which;
    // pointer and length describe it, and `name`, for the whole call. A service is not asked for: null and 0. Nothing
    // is kept.
    let code = unsafe {
        libc::getnameinfo(
            std::ptr::from_ref(address).cast(),
            size_of::<A>() as socklen_t,
            name.as_mut_ptr(),
            NAME_MAX as socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    (code == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// The name that getent(1) of the C library prints for an address.
    fn by_getent(address: &str) -> Option<String> {
        let output = Command::new("getent").args(["hosts", address]).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        text.split_whitespace().nth(1).map(str::to_owned)
    }

    #[test]
    fn names_are_those_of_getent() {
        for address in ["127.0.0.1", "::1"] {
            let expected = by_getent(address);
            assert_eq!(host_name(address.parse().expect("an address")), expected, "{address}");
        }
    }
}
