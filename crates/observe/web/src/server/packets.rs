//! Packets: a list for the page, or a pcapng file that a thread apart writes into the answer.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Release};
use std::time::Duration;

use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::HeaderValue;
use serde_json::json;
use tapline_pages::{FilterLine, Rights};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::answers::{Routed, headed, json_answer};
use super::{BoundedSlot, STALL_MAX, Shared};
use crate::body::Answer;
use crate::packets::{PacketAnswer, PacketRequest, PacketSource};
use crate::query::Query;
use crate::visitors::Connection;

/// Requests for packets at a time.
const FETCHES_MAX: usize = 4;
/// The most packets of a list, and of a file.
const LIST_MAX: u64 = 500;
/// The most packets of a list with all details: each has some 290 KB of text if it has 64 KiB.
const DETAILED_MAX: u64 = 50;
const FILE_PACKETS_MAX: u64 = 1_000_000;
const FILE_BYTES_MAX: u64 = 256 << 20;

pub(super) async fn packets(
    shared: &Arc<Shared>,
    (path, query): (&str, &Query),
    (rights, user): (Rights, &str),
    request: &Request<Incoming>,
    connection: Connection,
) -> Routed {
    if rights < Rights::Packets {
        return Err((403, "this token is for counts, not for packets".to_owned()));
    }
    let Some(source) = shared.packets.clone() else {
        return Err((
            404,
            "no packets are available: give --packets tap:NAME or --packets store:DIRECTORY".to_owned(),
        ));
    };
    let Some(place) = BoundedSlot::take(shared, |shared| &shared.fetches, FETCHES_MAX) else {
        return Err((503, format!("{FETCHES_MAX} others ask for packets just now: try again")));
    };
    let is_file = path.ends_with(".pcapng");
    // Which sources there are may have to be asked of others.
    let (query, of) = (query.clone(), Arc::clone(&source));
    let asked = tokio::task::spawn_blocking(move || packet_request(&query, of.as_ref(), is_file)).await;
    let asked = asked.unwrap_or_else(|_| Err("the sources of packets could not be asked".to_owned()));
    let asked = asked.map_err(|why| (400, why))?;
    if !is_file {
        let answered = tokio::task::spawn_blocking(move || {
            let _place = place;
            source.list(&asked)
        });
        let answer = answered.await.unwrap_or_else(|_| Err("the packets could not be read".to_owned()));
        let answer = answer.map_err(|why| (502, why))?;
        return Ok(json_answer(&json!({
            "packets": answer.packets,
            "span_ns": answer.span_ns,
            "is_cut": answer.is_cut,
            "notes": answer.notes,
            "lines": answer.lines.iter().map(|(time, len, line)| json!([time, len, line])).collect::<Vec<_>>(),
        })));
    }
    let agent = request.headers().get("user-agent").and_then(|agent| agent.to_str().ok()).unwrap_or("-");
    let by = if user.is_empty() { String::new() } else { format!("{user}, ") };
    (shared.log)(&format!(
        "download from {} of {} to {} ns, filter {:?}, by {by}{agent:?}",
        asked.source, asked.from_ns, asked.to_ns, asked.filter
    ));
    let (to, parts) = mpsc::channel::<Bytes>(4);
    let (log, is_whole) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
    let body = Answer::File(parts, Arc::clone(&is_whole));
    let mut parts_to = Parts { to, runtime: Handle::current(), stall_max: STALL_MAX };
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let told = match source.write(&asked, &mut parts_to) {
            Ok(answer) => {
                is_whole.store(true, Release);
                told(&answer)
            }
            Err(error) => {
                // What is still to be sent waits for a browser that does not read.
                connection.give_up();
                error
            }
        };
        (log.log)(&format!("download from {}: {told}", asked.source));
    });
    let mut response = headed(200, "application/x-pcapng", body);
    let name = HeaderValue::from_static("attachment; filename=\"packets.pcapng\"");
    response.headers_mut().insert("content-disposition", name);
    Ok(response)
}

fn packet_request(query: &Query, source: &dyn PacketSource, is_file: bool) -> Result<PacketRequest, String> {
    let sources = source.sources();
    if sources.is_empty() {
        return Err(
            "no packets are available: no capture of tapline serve may be read here. Start one: sudo tapline view -i eth0, or tapline serve -i eth0 --history '' --view".to_owned()
        );
    }
    let asked = query.text("source");
    let name = sources.iter().find(|known| *known == asked || asked.is_empty());
    let name = name.ok_or_else(|| format!("packets are there from: {}", sources.join(", ")))?;
    let time = |name: &str| {
        query.text(name).parse::<i64>().map_err(|_| format!("{name} is not a time in nanoseconds since 1970"))
    };
    let (from_ns, to_ns) = (time("from")?, time("to")?);
    if from_ns >= to_ns {
        return Err("the window ends before it begins".to_owned());
    }
    let is_detailed = !is_file && !query.text("details").is_empty();
    let list_max = if is_detailed { DETAILED_MAX } else { LIST_MAX };
    Ok(PacketRequest {
        source: name.clone(),
        filter: FilterLine::packets_text(query.text("filter"))?,
        from_ns,
        to_ns,
        packets_max: if is_file { FILE_PACKETS_MAX } else { query.number("most", list_max, 1, list_max) },
        bytes_max: FILE_BYTES_MAX,
        is_from_end: !is_file && !query.text("end").is_empty(),
        is_detailed,
    })
}

/// The end of a download, in words.
fn told(answer: &PacketAnswer) -> String {
    let cut = if answer.is_cut { "cut: more may be there" } else { "all there are" };
    let notes: String = answer.notes.iter().map(|note| format!("; {note}")).collect();
    format!("{} packets, {cut}{notes}", answer.packets)
}

/// The most bytes that a slow browser takes at once.
const PART_LEN: usize = 64 << 10;

/// A writer into the body of an answer, for a thread apart: waits while the browser is slow, ends when it has gone or
/// took nothing for `stall_max`.
struct Parts {
    to: mpsc::Sender<Bytes>,
    runtime: Handle,
    stall_max: Duration,
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(PART_LEN)];
        let sending = async {
            let sent = self.to.send(Bytes::copy_from_slice(bytes));
            tokio::time::timeout(self.stall_max, sent).await
        };
        match self.runtime.block_on(sending) {
            Ok(Ok(())) => Ok(bytes.len()),
            Ok(Err(_)) => Err(std::io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A browser that takes nothing of its download, and then one that has gone.
    #[test]
    fn a_download_that_stands_still_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let (to, mut parts) = mpsc::channel(1);
        let stall_max = Duration::from_millis(20);
        let ended = runtime.block_on(async {
            let runtime = Handle::current();
            let writer = move || {
                let mut writer = Parts { to, runtime, stall_max };
                (writer.write(b"first").ok(), writer.write(b"second").map_err(|error| error.kind()))
            };
            tokio::task::spawn_blocking(writer).await.expect("no panic")
        });
        assert_eq!(ended, (Some(5), Err(std::io::ErrorKind::TimedOut)));
        assert_eq!(parts.try_recv().expect("the first part"), "first");
        let (to, parts) = mpsc::channel(1);
        drop(parts);
        let runtime_handle = runtime.handle().clone();
        let mut writer = Parts { to, runtime: runtime_handle, stall_max };
        assert_eq!(writer.write(b"more").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    }
}
