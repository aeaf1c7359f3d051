//! Rights of a browser: pages, names, packets.
//!
//! ```text
//! address with #token --Authorization--> /api/session --Set-Cookie--> every other request
//! ```
//!
//! The token is in the fragment, which browsers do not send and do not put into Referer. Requests must name one of our
//! hosts (against DNS rebinding), and must not come from another site.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, COOKIE, HOST};

/// The name of the cookie.
pub(crate) const COOKIE_NAME: &str = "tapline";

/// What a browser may see. Each right includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Counts and addresses; no names from payloads.
    Look,
    /// Also names that clients asked for.
    Names,
    /// Also packets, as far as the daemon or the store lets this process have them.
    Packets,
}

impl Rights {
    /// The right as one word.
    pub const fn name(self) -> &'static str {
        match self {
            Rights::Look => "look",
            Rights::Names => "names",
            Rights::Packets => "packets",
        }
    }

    /// The right of a word.
    pub fn of_name(word: &str) -> Option<Rights> {
        [Rights::Look, Rights::Names, Rights::Packets].into_iter().find(|rights| rights.name() == word)
    }
}

/// The tokens, and the hosts under which browsers reach us.
#[derive(Debug)]
pub struct Access {
    tokens: Vec<(String, Rights)>,
    hosts: Vec<String>,
    is_behind_proxy: bool,
}

/// A request that is not answered: the status and the reason.
pub(crate) type Refusal = (u16, &'static str);

impl Access {
    /// A token of chance for these rights. `hosts` are names besides loopback's, without ports.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(rights: Rights, hosts: &[String], is_behind_proxy: bool) -> io::Result<Access> {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        Ok(Access { tokens: vec![(random()?, rights)], hosts, is_behind_proxy })
    }

    /// A token of chance more, for other rights.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn add(&mut self, rights: Rights) -> io::Result<&str> {
        self.tokens.push((random()?, rights));
        Ok(&self.tokens[self.tokens.len() - 1].0)
    }

    /// The first token.
    pub fn token(&self) -> &str {
        &self.tokens[0].0
    }

    /// Whether a request comes under one of our names, and from our own page or none.
    pub(crate) fn check_origin(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !self.is_ours(host) {
            return Err((421, "this host name is not one of ours: see --host"));
        }
        match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err((403, "this request comes from another site")),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, _)) => name,
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        let name = name.to_ascii_lowercase();
        let is_loopback = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        is_loopback || self.hosts.contains(&name)
    }

    /// The cookie for a request that brings a token.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Result<String, Refusal> {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let token = given.strip_prefix("Bearer ").unwrap_or_default();
        self.rights_of(token).ok_or((401, "this token is not the one that tapline view printed"))?;
        let secure = if self.is_behind_proxy { "; Secure" } else { "" };
        Ok(format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"))
    }

    /// The rights of a request, by its cookie. Servers at other ports of this host may set cookies of the same name.
    pub(crate) fn rights(&self, headers: &HeaderMap) -> Result<Rights, Refusal> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut given = pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value);
        given
            .find_map(|value| self.rights_of(value))
            .ok_or((401, "open the address that tapline view printed, with its token"))
    }

    fn rights_of(&self, given: &str) -> Option<Rights> {
        let mut found = None;
        for (token, rights) in &self.tokens {
            if is_equal(token.as_bytes(), given.as_bytes()) {
                found = Some(*rights);
            }
        }
        found
    }
}

/// In a time that does not tell where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// 128 bits, in hexadecimal.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn only_our_names_and_our_page_are_answered() {
        let access = Access::new(Rights::Look, &["Probe.example".into()], false).expect("random bytes");
        for host in ["127.0.0.1:7070", "localhost:7070", "[::1]:7070", "127.0.0.1", "probe.example:1"] {
            assert_eq!(access.check_origin(&headers(&[("host", host)])), Ok(()), "{host}");
        }
        for host in ["evil.example:7070", "127.0.0.1.evil.example", "", "localhost.evil.example", "[::2]:1"] {
            assert_eq!(
                access.check_origin(&headers(&[("host", host)])).map_err(|why| why.0),
                Err(421),
                "{host}"
            );
        }
        let other = headers(&[("host", "localhost"), ("sec-fetch-site", "cross-site")]);
        assert_eq!(access.check_origin(&other).map_err(|why| why.0), Err(403));
    }

    #[test]
    fn a_token_becomes_a_cookie_with_its_rights() {
        let mut access = Access::new(Rights::Packets, &[], false).expect("random bytes");
        let look = access.add(Rights::Look).expect("random bytes").to_owned();
        let cookie =
            access.session(&headers(&[("authorization", &format!("Bearer {look}"))])).expect("a cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
        let sent = format!("other=1; {}", cookie.split(';').next().expect("a pair"));
        assert_eq!(access.rights(&headers(&[("cookie", &sent)])), Ok(Rights::Look));
        let after_another = format!("tapline=of-another-port; {sent}");
        assert_eq!(access.rights(&headers(&[("cookie", &after_another)])), Ok(Rights::Look));
        for wrong in ["tapline=", "tapline=0", "", &format!("tapline={look}0")] {
            assert!(access.rights(&headers(&[("cookie", wrong)])).is_err(), "{wrong}");
        }
        assert!(access.session(&headers(&[("authorization", "Bearer ")])).is_err());
    }
}
