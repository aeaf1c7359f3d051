//! Receivers over HTTP, well and badly behaved.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::*;

/// Blocks that a receiver has, by their ids.
#[derive(Default)]
pub(super) struct ReceivedBlocks {
    pub(super) blocks: BTreeMap<String, Vec<u8>>,
    calls: usize,
    /// Blocks that came again.
    pub(super) again: usize,
}

/// A receiver that keeps each block once. Behaviour by the number of the call.
pub(super) struct Receiver {
    pub(super) url: String,
    pub(super) kept: Arc<Mutex<ReceivedBlocks>>,
    is_ending: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A receiver's way with a call.
#[derive(Clone, Copy)]
pub(super) enum Behaviour {
    Good,
    /// Not taken: 503.
    Busy,
    /// Taken, and the answer is lost.
    Silent,
    /// Cut in the body.
    Cut,
    /// Never to be taken.
    Refusing,
}

impl Receiver {
    pub(super) fn start(way: impl Fn(usize) -> Behaviour + Send + 'static) -> Receiver {
        Receiver::at(TcpListener::bind("127.0.0.1:0").expect("a port"), way)
    }

    fn at(listener: TcpListener, way: impl Fn(usize) -> Behaviour + Send + 'static) -> Receiver {
        let url = format!("http://{}/flows", listener.local_addr().expect("it is bound"));
        let kept = Arc::new(Mutex::new(ReceivedBlocks::default()));
        let is_ending = Arc::new(AtomicBool::new(false));
        let (theirs, ending) = (Arc::clone(&kept), Arc::clone(&is_ending));
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ending.load(Ordering::Relaxed) {
                    return;
                }
                let mut kept = theirs.lock().expect("no panic");
                let call = kept.calls;
                kept.calls += 1;
                // A probe that was killed cuts its calls.
                let _ = stream.and_then(|stream| answer(stream, way(call), &mut kept));
            }
        });
        Receiver { url, kept, is_ending, thread: Some(thread) }
    }

    fn lines(&self) -> Vec<String> {
        let kept = self.kept.lock().expect("no panic");
        let lines = kept.blocks.values().map(|block| String::from_utf8_lossy(block).into_owned());
        lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        let host = self.url.trim_start_matches("http://").trim_end_matches("/flows");
        let _ = TcpStream::connect(host);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(stream: TcpStream, way: Behaviour, kept: &mut ReceivedBlocks) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut id, mut len) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            // A sender that was killed before its request was whole.
            return Ok(());
        }
        let line = line.trim();
        let Some((name, value)) = line.split_once(':') else {
            if line.is_empty() {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "tapline-batch" => id = value.trim().to_owned(),
            "content-length" => len = value.trim().parse().expect("a number"),
            _ => {}
        }
    }
    if let Behaviour::Cut = way {
        return Ok(());
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body)?;
    let status = match way {
        Behaviour::Good | Behaviour::Silent => {
            match kept.blocks.get(&id) {
                Some(block) => {
                    assert!(*block == body, "{id} has other rows now");
                    kept.again += 1;
                }
                None => drop(kept.blocks.insert(id, body)),
            }
            "200 OK"
        }
        Behaviour::Busy => "503 Busy",
        Behaviour::Refusing => "400 Bad Request",
        Behaviour::Cut => "",
    };
    if let Behaviour::Silent = way {
        return Ok(());
    }
    write!(reader.get_mut(), "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")
}

fn probe(input: &Path, url: &str, more: &[&str]) -> std::process::Command {
    let words = ["probe", "-r", text(input), "--export", url, "--json", "--batch-rows", "50"];
    tapline(words.iter().chain(more))
}

#[test]
fn a_receiver_that_misbehaves_has_every_row_once() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 1000);
    let receiver = Receiver::start(|call| {
        [Behaviour::Busy, Behaviour::Good, Behaviour::Silent, Behaviour::Cut, Behaviour::Good][call % 5]
    });
    let told = finish(&mut probe(&input, &receiver.url, &["--patience", "60"])).succeeded();
    let counters = counters(&told);
    assert_eq!(counters["acknowledged"], 1000);
    assert!(counters["repeated"].as_u64() > Some(3), "{counters}");
    let lines = receiver.lines();
    assert_eq!((lines.len(), lines.iter().collect::<BTreeSet<_>>().len()), (1000, 1000));
    assert!(receiver.kept.lock().expect("no panic").again > 0);
}

#[test]
fn a_refusal_of_the_receiver_fails_the_run() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 100);
    let receiver = Receiver::start(|_| Behaviour::Refusing);
    let told = finish(&mut probe(&input, &receiver.url, &[]));
    told.failed_saying(&["refused: answer 400: no", "100 packets"]);
}

#[test]
fn a_spool_outlives_an_outage_and_the_run() {
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 1000);
    // Few other tests have sockets at this address.
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let url = format!("http://{address}/flows");
    let spool = format!("{},10M", folder.path().join("spool").display());
    let told = finish(&mut probe(&input, &url, &["--spool", &spool, "--patience", "0.2s"])).succeeded();
    assert_eq!(counters(&told)["spooled"], 1000);
    let listener = TcpListener::bind(address).expect("the port is ours");
    let receiver = Receiver::at(listener, |_| Behaviour::Good);
    let told = finish(&mut probe(&input, &url, &["--spool", &spool, "--patience", "60"])).succeeded();
    let counters = counters(&told);
    assert_eq!(
        ["acknowledged", "earlier_found", "earlier_acknowledged"].map(|name| counters[name].as_u64()),
        [Some(1000); 3]
    );
    assert_eq!(receiver.lines().len(), 2000);
}

/// Kills the probe at any time, again and again, with a receiver that misbehaves. No row of a run is there twice; rows
/// that were acknowledged or spooled are there in the end.
#[test]
fn kills_double_no_row_and_lose_none_that_was_kept() {
    let kills = std::env::var("TAPLINE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 2000);
    let is_mended = Arc::new(AtomicBool::new(false));
    let mended = Arc::clone(&is_mended);
    let receiver = Receiver::start(move |call| match mended.load(Ordering::Relaxed) {
        true => Behaviour::Good,
        false => {
            [Behaviour::Busy, Behaviour::Good, Behaviour::Silent, Behaviour::Cut, Behaviour::Good][call % 5]
        }
    });
    let place = folder.path().join("spool");
    let spool = format!("{},100M", place.display());
    let more = ["--spool", spool.as_str(), "--patience", "60"];
    for kill in 0..kills {
        let mut child =
            probe(&input, &receiver.url, &more).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.as_mut().expect("it starts");
        thread::sleep(Duration::from_millis(20 + 37 * (kill % 11)));
        child.kill().and_then(|()| child.wait().map(|_| ())).expect("it is ours");
    }
    let spooled: BTreeSet<String> = blocks_in(&place);
    is_mended.store(true, Ordering::Relaxed);
    let told = finish(&mut probe(&input, &receiver.url, &more)).succeeded();
    let counters = counters(&told);
    assert_eq!(counters["acknowledged"], 2000, "{counters}");
    assert!(blocks_in(&place).is_empty());
    let kept = receiver.kept.lock().expect("no panic");
    assert!(spooled.iter().all(|id| kept.blocks.contains_key(id)), "a block of the spool never came");
    let mut of_runs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (id, block) in &kept.blocks {
        let run = id.rsplit_once('-').expect("a number").0;
        of_runs.entry(run).or_default().extend(std::str::from_utf8(block).expect("text").lines());
    }
    for (run, lines) in &of_runs {
        let once: BTreeSet<&&str> = lines.iter().collect();
        assert!(once.len() == lines.len() && lines.len() <= 2000, "{run}");
    }
    let runs = of_runs.len();
    eprintln!(
        "{kills} kills: {runs} runs delivered, {} of the blocks twice, {} from the spool",
        kept.again,
        spooled.len()
    );
}

/// Ids of the blocks below a folder.
fn blocks_in(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("block") => {
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let parts: Vec<&str> = name.splitn(3, '-').collect();
                let number = |text: &str| text.parse::<u64>().expect("a number");
                found.insert(format!("{}-{}-{}", parts[2], number(parts[0]), number(parts[1])));
            }
            _ => found.extend(blocks_in(&path)),
        }
    }
    found
}

/// Sums of the blocks in a folder: rows, packets, octets and distinct pairs of addresses.
#[cfg(all(feature = "arrow", feature = "parquet"))]
const SUMS: &str = "
import glob, sys
import pyarrow as pa, pyarrow.ipc, pyarrow.parquet
def read(path):
    return pa.parquet.read_table(path) if path.endswith('.parquet') else pa.ipc.open_stream(path).read_all()
rows = [row for path in sorted(glob.glob(sys.argv[1] + '/*')) for row in read(path).to_pylist()]
pairs = {(row['sourceIPv4Address'], row['destinationIPv4Address'], row['sourceTransportPort']) for row in rows}
print(len(rows), sum(row['packetDeltaCount'] for row in rows), sum(row['octetDeltaCount'] for row in rows), len(pairs))
";

#[cfg(all(feature = "arrow", feature = "parquet"))]
#[test]
fn pyarrow_reads_blocks_of_columns() {
    if !module_or_skip("pyarrow_reads_blocks_of_columns", "pyarrow") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 300);
    let lines = folder.path().join("lines.json");
    run(["probe", "-r", text(&input), "--export", &format!("json:{}", lines.display())]).succeeded();
    let lines = fs::read_to_string(&lines).expect("it is there");
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let sum = |name: &str| rows.iter().map(|row| row[name].as_u64().expect("a number")).sum::<u64>();
    let expected =
        format!("{} {} {} {}", rows.len(), sum("packetDeltaCount"), sum("octetDeltaCount"), rows.len());
    for format in ["arrow", "parquet"] {
        let receiver = Receiver::start(|_| Behaviour::Good);
        let told = finish(&mut probe(&input, &format!("{}?format={format}", receiver.url), &[])).succeeded();
        assert_eq!(counters(&told)["acknowledged"], 300);
        let blocks = folder.path().join(format);
        fs::create_dir(&blocks).expect("there is room");
        let kept = receiver.kept.lock().expect("no panic");
        assert!(kept.blocks.len() >= 6, "{} blocks", kept.blocks.len());
        for (id, bytes) in &kept.blocks {
            fs::write(blocks.join(format!("{id}.{format}")), bytes).expect("there is room");
        }
        let output = python().args(["-c", SUMS, text(&blocks)]).output().expect("python3");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected, "{format}");
    }
}
