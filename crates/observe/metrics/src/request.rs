//! One request and its answer: HTTP/1.1 as far as a scrape needs it (RFC 9110, RFC 9112).
//!
//! A connection has one request of at most [`REQUEST_LEN_MAX`] bytes and [`TIME_MAX`], reading and writing together.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::exposition::Format;

/// Bytes of a request's head. Prometheus sends some 400.
const REQUEST_LEN_MAX: usize = 8 << 10;
/// Fields of a request's head.
const FIELDS_MAX: usize = 64;
/// Time for a whole connection.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes written at once: so often the deadline is looked at.
const PIECE_LEN: usize = 64 << 10;

/// The other end of a connection.
pub(crate) trait Connection: Read + Write {
    /// The other end may be a browser, which a page of any site can send here under a name of its own.
    const IS_OPEN_TO_BROWSERS: bool;

    /// Lets each reading and writing wait for so long at most.
    fn limit(&self, time: Duration) -> io::Result<()>;
}

/// A request that can be answered, or the status that refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Metrics { format: Format, is_head: bool },
    Refused(&'static str, &'static str),
}

/// Reads the request, and answers it with the text that `collect` gives.
pub(crate) fn answer(
    mut connection: impl Connection,
    collect: impl FnOnce(Format) -> String,
) -> io::Result<()> {
    let until = Instant::now() + TIME_MAX;
    let (content_type, status, body, is_head) = match read(&mut connection, until)? {
        Request::Metrics { format, is_head } => (format.content_type(), "200 OK", collect(format), is_head),
        Request::Refused(status, why) => ("text/plain; charset=utf-8", status, format!("{why}\n"), false),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    write(&mut connection, head.as_bytes(), until)?;
    if !is_head {
        write(&mut connection, body.as_bytes(), until)?;
    }
    Ok(())
}

fn read<C: Connection>(connection: &mut C, until: Instant) -> io::Result<Request> {
    let mut bytes = vec![0; REQUEST_LEN_MAX];
    let mut len = 0;
    loop {
        connection.limit(left(until)?)?;
        match connection.read(&mut bytes[len..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(request) = parse(&bytes[..len], C::IS_OPEN_TO_BROWSERS) {
            return Ok(request);
        }
        if len == bytes.len() {
            return Ok(Request::Refused("431 Request Header Fields Too Large", "the request is too long"));
        }
    }
}

/// The request, once its head is there.
fn parse(bytes: &[u8], is_host_checked: bool) -> Option<Request> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return None,
        Err(httparse::Error::TooManyHeaders) => {
            return Some(Request::Refused("431 Request Header Fields Too Large", "too many fields"));
        }
        Err(_) => return Some(Request::Refused("400 Bad Request", "no request of HTTP")),
    }
    let mut hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    if is_host_checked && !hosts.all(|field| is_of_this_host(field.value)) {
        return Some(Request::Refused("403 Forbidden", "another host's name: ask localhost or an address"));
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let method = request.method.unwrap_or_default();
    if !matches!(method, "GET" | "HEAD") {
        return Some(Request::Refused("405 Method Not Allowed", "metrics can only be read: GET"));
    }
    if path != "/metrics" {
        return Some(Request::Refused("404 Not Found", "metrics are at /metrics"));
    }
    let mut accepts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("accept"));
    let wants_open = accepts.any(|field| is_openmetrics(field.value));
    let format = if wants_open { Format::OpenMetrics } else { Format::Prometheus };
    Some(Request::Metrics { format, is_head: method == "HEAD" })
}

/// `Host` without its port is an address or localhost. A site that has its own name point here (DNS rebinding) cannot
/// have its pages read metrics.
fn is_of_this_host(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
}

/// A list of accepted types has OpenMetrics, with a weight above 0 (RFC 9110, 12.5.1). Weights are not compared: a
/// client that names the type gets it.
fn is_openmetrics(accept: &[u8]) -> bool {
    let accept = String::from_utf8_lossy(accept).to_ascii_lowercase();
    accept.split(',').any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_refused = |part: &str| {
            let weight = part.strip_prefix("q=").and_then(|weight| weight.trim().parse::<f32>().ok());
            weight.is_some_and(|weight| weight <= 0.0)
        };
        parts.next() == Some("application/openmetrics-text") && !parts.any(is_refused)
    })
}

fn write(connection: &mut impl Connection, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.limit(left(until)?)?;
        match connection.write(&bytes[..bytes.len().min(PIECE_LEN)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    connection.flush()
}

/// The time that is left; never zero, which would be no limit.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that receives a few bytes at a time, and records the written bytes.
    struct Slow<'b> {
        request: &'b [u8],
        answer: Vec<u8>,
    }

    impl Read for &mut Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let len = self.request.len().min(7).min(into.len());
            into[..len].copy_from_slice(&self.request[..len]);
            self.request = &self.request[len..];
            Ok(len)
        }
    }

    impl Write for &mut Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.answer.extend(&bytes[..bytes.len().min(9)]);
            Ok(bytes.len().min(9))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Connection for &mut Slow<'_> {
        const IS_OPEN_TO_BROWSERS: bool = true;

        fn limit(&self, time: Duration) -> io::Result<()> {
            assert!(time <= TIME_MAX && !time.is_zero());
            Ok(())
        }
    }

    fn ask(request: &[u8]) -> io::Result<String> {
        let mut connection = Slow { request, answer: Vec::new() };
        answer(&mut connection, |format| format!("{format:?}\n"))?;
        Ok(String::from_utf8(connection.answer).expect("text"))
    }

    #[test]
    fn a_scrape_gets_the_form_that_it_accepts() {
        let plain =
            ask(b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9477\r\nAccept: text/plain\r\n\r\n").unwrap();
        assert!(
            plain.starts_with("HTTP/1.1 200 OK\r\n") && plain.ends_with("\r\n\r\nPrometheus\n"),
            "{plain}"
        );
        let accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        let open = ask(format!("GET /metrics HTTP/1.1\r\n{accept}\r\n\r\n").as_bytes()).unwrap();
        assert!(open.contains("application/openmetrics-text") && open.ends_with("OpenMetrics\n"), "{open}");
        let refused =
            ask(b"GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;q=0, */*\r\n\r\n").unwrap();
        assert!(refused.ends_with("Prometheus\n"), "{refused}");
        let head = ask(b"HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 11\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn names_of_other_hosts_are_refused() {
        let status = |host: &str| {
            let answer = ask(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
            answer.split(' ').nth(1).unwrap().to_owned()
        };
        for host in ["localhost", "LOCALHOST:9477", "127.0.0.1:9477", "[::1]:9477", "[::1]", "192.0.2.1"] {
            assert_eq!(status(host), "200", "{host}");
        }
        for host in ["evil.example:9477", "localhost.evil.example", "127.0.0.1.evil.example", "", "a:b:1"] {
            assert_eq!(status(host), "403", "{host}");
        }
    }

    #[test]
    fn other_requests_are_refused() {
        let status = |request: &[u8]| ask(request).unwrap().lines().next().unwrap().to_owned();
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\r\n\r\n"), "HTTP/1.1 400 Bad Request");
        let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        long.resize(REQUEST_LEN_MAX + 1, b'x');
        assert_eq!(status(&long), "HTTP/1.1 431 Request Header Fields Too Large");
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(status(many.as_bytes()), "HTTP/1.1 431 Request Header Fields Too Large");
        assert!(ask(b"GET /met").is_err());
    }
}
