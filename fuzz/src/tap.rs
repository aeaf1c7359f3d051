//! The daemon's socket with a peer that says anything, on either side.
//!
//! ```text
//! input := what the other end writes before it is gone
//! ```

use std::fmt::Debug;
use std::io::Write;
use std::os::unix::net::UnixStream;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tapline_tap_client::protocol::{AttachRequest, Policy, Reply, Request, StartPosition, VERSION};
use tapline_tap_client::{Channel, Error};

/// What fits into a socket at once, so that one thread does both ends.
const LEN_MAX: usize = 64 << 10;

/// Every line is a message or an error that ends the connection; what was understood means the same when it is said
/// again.
pub fn tap_socket(data: &[u8]) {
    let data = &data[..data.len().min(LEN_MAX)];
    said::<Request>(data);
    said::<Reply>(data);
}

fn said<T: DeserializeOwned + Serialize + PartialEq + Debug>(data: &[u8]) {
    let (mut other, ours) = UnixStream::pair().expect("descriptors are there");
    other.write_all(data).expect("the socket has room");
    drop(other);
    let mut channel = Channel::new(ours, false);
    let mut understood = 0;
    loop {
        match channel.receive::<T>() {
            Ok(message) => {
                understood += 1;
                let text = serde_json::to_string(&message).expect("it came as JSON");
                assert_eq!(serde_json::from_str::<T>(&text).expect("ours is understood"), message);
            }
            Err(Error::Closed) => break,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    assert!(understood <= data.iter().filter(|&&byte| byte == b'\n').count());
}

pub(super) fn tap_socket_seeds() -> Vec<Vec<u8>> {
    let lines = [
        serde_json::to_string(&Request::Hello { version: VERSION, program: "tcpdump".to_owned() }),
        serde_json::to_string(&Request::Attach(AttachRequest {
            capture: "office".to_owned(),
            filter: "tcp port 443".to_owned(),
            policy: Policy::Leased { bytes: 1 << 24, ms: 5000 },
            start: StartPosition::SinceMs(10_000),
            ..AttachRequest::default()
        })),
        serde_json::to_string(&Request::Program { insns: vec![(0x28, 0, 0, 12), (0x06, 0, 0, 0xffff)] }),
        serde_json::to_string(&Request::Status {}),
        serde_json::to_string(&Request::Detach {}),
        serde_json::to_string(&Reply::Hello { version: VERSION, captures: Vec::new() }),
        serde_json::to_string(&Reply::Buffer(3)),
        serde_json::to_string(&Reply::Status(Default::default())),
        serde_json::to_string(&Reply::Error("no".to_owned())),
    ];
    lines.into_iter().map(|line| (line.expect("it is JSON") + "\n").into_bytes()).collect()
}
