//! A server with prepared answers, for tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::{self, JoinHandle};

/// Heads and bodies.
type Calls = Vec<(String, Vec<u8>)>;

/// Answers one call after the other; the heads and bodies that came.
pub(crate) fn server(answers: Vec<Vec<u8>>) -> (String, JoinHandle<Calls>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/flows", listener.local_addr().expect("it is bound"));
    let serving = thread::spawn(move || {
        let answer = |answer: &[u8]| {
            let (stream, _) = listener.accept().expect("a call");
            let mut reader = BufReader::new(stream);
            let (mut head, mut len) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a line");
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    len = value.trim().parse().expect("a number");
                }
                head += &line;
            }
            let mut body = vec![0; len];
            reader.read_exact(&mut body).expect("a body");
            let _ = reader.get_mut().write_all(answer);
            (head, body)
        };
        answers.iter().map(|bytes| answer(bytes)).collect()
    });
    (url, serving)
}

/// An answer with these headers and this body.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {len}\r\n\r\n{body}")
        .into_bytes()
}
