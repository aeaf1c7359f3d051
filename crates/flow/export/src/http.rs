//! Web servers: a block is the body of a POST, and a header has its id.
//!
//! ```text
//! POST /path        Content-Type, Content-Encoding where it is compressed, Tapline-Batch: sensor-epoch-number, Tapline-Rows, Tapline-Schema
//! 2xx               delivered
//! 400 413 415 422   refused: the block itself is at fault
//! others, silence   again
//! ```

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tapline_file::{Compression, Packer};

use crate::{Block, Outcome, Secret, Target};

/// The longest time of a call, and of connecting.
const CALL_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The most bytes of an answer that are read, and that are shown.
const ANSWER_MAX: u64 = 16 << 10;
const SHOWN_MAX: usize = 200;

/// A web server.
pub(crate) struct HttpTarget {
    agent: ureq::Agent,
    url: String,
    compression: Option<Compression>,
    /// Value of the header `Authorization`.
    authorization: Option<String>,
    /// Memory of compressed bodies.
    packed: Vec<u8>,
}

impl HttpTarget {
    /// A server at an address. With a user the secret is a password, else a token.
    pub(crate) fn new(
        url: &str,
        compression: Option<Compression>,
        user: Option<&str>,
        secret: Option<Secret>,
    ) -> HttpTarget {
        let authorization = match (user, secret) {
            (Some(user), secret) => {
                let password = secret.as_ref().map_or("", Secret::as_str);
                Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}"))))
            }
            (None, Some(secret)) => Some(format!("Bearer {}", secret.as_str())),
            (None, None) => None,
        };
        HttpTarget { agent: agent(), url: url.to_owned(), compression, authorization, packed: Vec::new() }
    }
}

/// No redirections: a body is not given to another host than the one that was named.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(CALL_TIME))
        .timeout_connect(Some(CONNECT_TIME))
        .http_status_as_error(false)
        .max_redirects(0);
    config.build().into()
}

impl Target for HttpTarget {
    fn name(&self) -> &str {
        &self.url
    }

    fn deliver(&mut self, block: &Block) -> Outcome {
        let mut request = self
            .agent
            .post(&self.url)
            .header("content-type", block.encoding.media_type())
            .header("tapline-batch", block.id.to_string())
            .header("tapline-rows", block.rows.to_string())
            .header("tapline-schema", format!("{:016x}", block.schema));
        if let Some(authorization) = &self.authorization {
            request = request.header("authorization", authorization);
        }
        if let Some(compression) = self.compression {
            request = request.header("content-encoding", compression.name());
        }
        let body = match packed(&block.bytes, self.compression, &mut self.packed) {
            Ok(body) => body,
            Err(error) => return Outcome::Again(error.to_string()),
        };
        match request.send(body) {
            Ok(mut answer) => outcome(answer.status().as_u16(), || shown(&body_of(&mut answer))),
            Err(error) => Outcome::Again(error.to_string()),
        }
    }
}

/// The body of a call: the bytes, or all of them compressed in `memory`, which keeps its size for the next call.
pub(crate) fn packed<'b>(
    bytes: &'b [u8],
    compression: Option<Compression>,
    memory: &'b mut Vec<u8>,
) -> io::Result<&'b [u8]> {
    let Some(compression) = compression else { return Ok(bytes) };
    *memory = Packer::pack_whole(compression, bytes, std::mem::take(memory))?;
    Ok(memory)
}

/// An answer's body, if it is no longer than others' answers should be.
pub(crate) fn body_of(answer: &mut ureq::http::Response<ureq::Body>) -> String {
    let body = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().unwrap_or_default();
    String::from_utf8_lossy(&body).into_owned()
}

/// The beginning of a body, to be shown. Others wrote it: no letter of it moves a terminal's cursor.
pub(crate) fn shown(body: &str) -> String {
    let line = body.lines().next().unwrap_or_default();
    line.chars().filter(|letter| !letter.is_control()).take(SHOWN_MAX).collect()
}

fn outcome(status: u16, text: impl FnOnce() -> String) -> Outcome {
    match status {
        200..300 => Outcome::Delivered,
        400 | 413 | 415 | 422 => Outcome::Refused(format!("answer {status}: {}", text())),
        _ => Outcome::Again(format!("answer {status}: {}", text())),
    }
}

#[cfg(test)]
mod tests;
