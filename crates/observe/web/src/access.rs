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

use hyper::header::{AUTHORIZATION, COOKIE, HOST};
use hyper::{HeaderMap, Uri};
use tapline_pages::Rights;

pub(crate) const COOKIE_NAME: &str = "tapline";

/// The tokens, and the hosts under which browsers reach us.
#[derive(Debug)]
pub struct Access {
    tokens: Vec<Token>,
    hosts: Vec<String>,
    is_secure: bool,
}

/// A token, and the user that it was given to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Token {
    text: String,
    rights: Rights,
    /// The name that downloads are logged with; empty for the printed token.
    user: String,
}

/// The least letters of a token that a file names: 128 bits in hexadecimal.
const TOKEN_LEN_MIN: usize = 32;

fn check_token(token: &str) -> Result<(), &'static str> {
    let is_plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match token.len() >= TOKEN_LEN_MIN && is_plain {
        true => Ok(()),
        false => Err("a token has at least 32 letters and digits: openssl rand -hex 16"),
    }
}

/// A request that is not answered: the status and the reason.
pub(crate) type Refusal = (u16, &'static str);

impl Access {
    /// A random token for these rights. `hosts` are names in addition to loopback's, without ports.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(rights: Rights, hosts: &[String], is_secure: bool) -> io::Result<Access> {
        let hosts = hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        let token = Token { text: random()?, rights, user: String::new() };
        Ok(Access { tokens: vec![token], hosts, is_secure })
    }

    /// The first token.
    pub fn token(&self) -> &str {
        &self.tokens[0].text
    }

    /// Takes another first token: one that was kept.
    ///
    /// # Errors
    /// It is too short, or has other characters than letters and digits.
    pub fn set_token(&mut self, text: &str) -> Result<(), &'static str> {
        check_token(text)?;
        self.tokens[0].text = text.to_owned();
        Ok(())
    }

    /// Adds the users of a file: each line has a name, its rights and its token; `#` begins a comment.
    ///
    /// # Errors
    /// A text that says which line is wrong, and why.
    pub fn add_users(&mut self, text: &str) -> Result<(), String> {
        for (number, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |reason: &str| Err(format!("line {}: {reason}", number + 1));
            let words: Vec<&str> = line.split_whitespace().collect();
            let [user, rights, token] = words[..] else {
                return wrong("a line is a name, its rights and its token");
            };
            let Some(rights) = Rights::of_name(rights) else {
                return wrong("rights are look, names or packets");
            };
            check_token(token).or_else(wrong)?;
            if self.tokens.iter().any(|known| known.text == token || known.user == user) {
                return wrong("this name or token is there already");
            }
            self.tokens.push(Token { text: token.to_owned(), rights, user: user.to_owned() });
        }
        Ok(())
    }

    /// Whether a request comes under one of our names, and from our own page or none. Its address may name the host,
    /// too, by the same words (RFC 9112, 3.2).
    pub(crate) fn check_origin(&self, address: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or_default();
        if hosts.next().is_some() {
            return Err((400, "a request has one Host"));
        }
        if address.authority().is_some_and(|named| !named.as_str().eq_ignore_ascii_case(host)) {
            return Err((400, "the address names another host than Host does"));
        }
        if !self.is_ours(host) {
            return Err((421, "this host name is not one of ours: see --host"));
        }
        match headers.get("sec-fetch-site").map(|site| site.as_bytes()) {
            None | Some(b"same-origin" | b"none") => Ok(()),
            Some(_) => Err((403, "this request comes from another site")),
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, port)) if name.contains(':') => (name, port),
            Some(_) => return false,
            None => host.split_at(host.find(':').unwrap_or(host.len())),
        };
        let is_port = port.strip_prefix(':').map_or(port.is_empty(), |port| {
            port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit())
        });
        let name = name.to_ascii_lowercase();
        let is_loopback = name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        is_port && (is_loopback || self.hosts.contains(&name))
    }

    /// The cookie for a request that brings a token; `None` if it does not, or another one.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Option<String> {
        let token = &self.bearer(headers)?.text;
        let secure = if self.is_secure { "; Secure" } else { "" };
        Some(format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict{secure}"))
    }

    /// The rights of a request, by its token or cookie, and the name of its user; empty for the printed token. Servers
    /// at other ports of this host may set cookies of the same name.
    pub(crate) fn rights(&self, headers: &HeaderMap) -> Result<(Rights, &str), Refusal> {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut given = pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value);
        let token = self.bearer(headers).or_else(|| given.find_map(|value| self.find(value)));
        let token = token.ok_or((401, "open the address that tapline view printed, with its token"))?;
        Ok((token.rights, &token.user))
    }

    /// The token that a request brings.
    fn bearer(&self, headers: &HeaderMap) -> Option<&Token> {
        let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
        self.find(given.strip_prefix("Bearer ")?)
    }

    /// Compares with each token, so that the time reveals nothing.
    fn find(&self, given: &str) -> Option<&Token> {
        let mut found = None;
        for token in &self.tokens {
            if is_equal(token.text.as_bytes(), given.as_bytes()) {
                found = Some(token);
            }
        }
        found
    }
}

/// Compares in a time that does not depend on the place of the difference.
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
        let check = |address: &str, pairs: &[(&'static str, &str)]| {
            let address = address.parse().expect("an address");
            access.check_origin(&address, &headers(pairs)).map_err(|why| why.0)
        };
        for host in
            ["127.0.0.1:7070", "localhost:7070", "[::1]:7070", "[::1]", "127.0.0.1", "probe.example:1"]
        {
            assert_eq!(check("/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example:7070",
            "127.0.0.1.evil.example",
            "",
            "localhost.evil.example",
            "[::2]:1",
            "[::1]evil.example",
            "[::1]:1.evil.example",
            "[localhost]:1",
            "localhost:1:2",
            "localhost:evil",
        ] {
            assert_eq!(check("/", &[("host", host)]), Err(421), "{host}");
        }
        assert_eq!(check("/", &[("host", "localhost"), ("sec-fetch-site", "cross-site")]), Err(403));
        assert_eq!(check("/", &[("host", "localhost"), ("host", "localhost")]), Err(400));
        assert_eq!(check("http://localhost/", &[("host", "localhost")]), Ok(()));
        assert_eq!(check("http://evil.example/", &[("host", "localhost")]), Err(400));
    }

    #[test]
    fn a_token_becomes_a_cookie_with_its_rights() {
        let mut access = Access::new(Rights::Packets, &[], false).expect("random bytes");
        let look = "0123456789abcdef0123456789abcdef";
        access.add_users(&format!("# users\nalice look {look} # of the office\n")).expect("a user");
        let brought = headers(&[("authorization", &format!("Bearer {look}"))]);
        let cookie = access.session(&brought).expect("a cookie");
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
        assert_eq!(access.rights(&brought), Ok((Rights::Look, "alice")));
        let sent = format!("other=1; {}", cookie.split(';').next().expect("a pair"));
        assert_eq!(access.rights(&headers(&[("cookie", &sent)])), Ok((Rights::Look, "alice")));
        let after_another = format!("tapline=of-another-port; {sent}");
        assert_eq!(access.rights(&headers(&[("cookie", &after_another)])), Ok((Rights::Look, "alice")));
        for wrong in ["tapline=", "tapline=0", "", &format!("tapline={look}0")] {
            assert!(access.rights(&headers(&[("cookie", wrong)])).is_err(), "{wrong}");
        }
        assert_eq!(access.session(&headers(&[("authorization", "Bearer ")])), None);
    }

    #[test]
    fn users_of_a_file_are_refused_by_line() {
        let mut access = Access::new(Rights::Look, &[], false).expect("random bytes");
        let token = "0123456789abcdef0123456789abcdef";
        for (text, reason) in [
            ("\nalice look".to_owned(), "line 2: a line is a name"),
            (format!("alice all {token}"), "line 1: rights are"),
            ("alice look 0123".to_owned(), "openssl"),
            (format!("alice look {token}\nbob look {token}"), "line 2: this name or token"),
        ] {
            let refused = access.add_users(&text).expect_err(&text);
            assert!(refused.contains(reason), "{text}: {refused}");
        }
    }
}
