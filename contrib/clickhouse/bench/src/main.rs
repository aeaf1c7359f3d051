//! The client's time of the processor for a row into ClickHouse: blocks of `tapline-export`, `Native`, against the crate `clickhouse`,
//! `RowBinary`, each as it is and compressed with lz4, of the same flows and to the same server.
//!
//! ```text
//! cargo run --release --manifest-path contrib/clickhouse/bench/Cargo.toml -- [ROWS [RUNS]]
//! ... -- sink                        the server that takes all and keeps nothing: another process, whose time is not counted
//! CLICKHOUSE=127.0.0.1:8123 ...      and first, both into a server of 18.16 or newer, whose rows and sums must be equal
//! ```
//!
//! The crate sends blocks of `Native` that a program has made itself (`insert_native`), and makes none: its own way for rows
//! is `RowBinary`. The check is without compression on our side, and with times in seconds, which old servers know.
//!
//! Measured is the time of the processor of this process (`CLOCK_PROCESS_CPUTIME_ID`), all threads, from flows in memory to the last
//! acknowledgement. Runs of all take turns. Rows of the crate are made from flows as those of a program that uses it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clickhouse::{Client, Compression, Row};
use serde::Serialize;
use tapline_export::{BatchExporter, Delivery, Limits, Receiver, Schema, Sensor};
use tapline_flow::export::{ExportOptions, FlowSink as _, NativeEncoder, TableShape};
use tapline_flow::{EndReason, Endpoint, Flow, FlowContext};
use tapline_packet::Timestamp;

const TEMPLATE: &str = "flowStartNanoseconds,flowEndNanoseconds,sourceIPv4Address,sourceTransportPort,\
     destinationIPv4Address,destinationTransportPort,protocolIdentifier,octetDeltaCount,\
     packetDeltaCount,tcpControlBits,flowEndReason";
const PEERS: [&str; 4] = ["tapline native", "tapline, lz4", "crate RowBinary", "crate, lz4"];
/// Rows of an insert, of both.
const BATCH: u64 = 100_000;

/// A row as the crate wants it; columns in the order of the template.
#[derive(Row, Serialize)]
#[allow(non_snake_case)]
struct FlowRow {
    flowStartNanoseconds: i64,
    flowEndNanoseconds: i64,
    sourceAddress: [u8; 16],
    sourceTransportPort: u16,
    destinationAddress: [u8; 16],
    destinationTransportPort: u16,
    protocolIdentifier: u8,
    octetDeltaCount: u64,
    packetDeltaCount: u64,
    tcpControlBits: u8,
    flowEndReason: u8,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|word| word == "sink") {
        return sink();
    }
    let number = |at: usize, usual: u64| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let (rows, runs) = (number(0, 1_000_000)?, number(1, 5)?);
    let flows = flows(rows);
    if let Ok(server) = std::env::var("CLICKHOUSE") {
        check(&server, &flows)?;
    }
    let mut server = Sink::start()?;
    let mut seen: [Vec<f64>; PEERS.len()] = Default::default();
    for run in 0..runs {
        for turn in 0..PEERS.len() {
            let peer = (run as usize + turn) % PEERS.len();
            let before = server.octets()?;
            let (start, used) = (Instant::now(), processor_time());
            match peer {
                0 => ours(&server.address, "flows", "", &flows)?,
                1 => ours(&server.address, "flows", "compress=lz4", &flows)?,
                2 => theirs(&server.address, "flows", Compression::None, &flows)?,
                _ => theirs(&server.address, "flows", Compression::Lz4, &flows)?,
            }
            let (used, took) = (processor_time() - used, start.elapsed());
            let octets = server.octets()? - before;
            let of_row = used.as_nanos() as f64 / rows as f64;
            println!(
                "{:<16} {of_row:7.1} ns a row, {:5.1} octets a row, {:.2} s",
                PEERS[peer],
                octets as f64 / rows as f64,
                took.as_secs_f64()
            );
            seen[peer].push(of_row);
        }
    }
    let medians = seen.map(|mut all| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    });
    println!("medians of {runs}:");
    for (name, median) in PEERS.iter().zip(medians) {
        println!("{name:<16} {median:7.1} ns a row: {:.2} of the crate's with lz4", median / medians[3]);
    }
    Ok(())
}

/// Flows of two packets, one way, between hosts of chance: as long as rows get.
fn flows(count: u64) -> Vec<Flow> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chance = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let start = 1_790_000_000_000_000_000_i64;
    (0..count)
        .map(|number| {
            let time = Timestamp::from_nanos(start + number as i64 * 10_000);
            let (packets, bytes) = (1 + chance() % 50, 60 + chance() % 40_000);
            let mut end = |packets, bytes| Endpoint {
                address: IpAddr::from((chance() as u32 | 1).to_be_bytes()),
                port: chance() as u16,
                packets,
                bytes,
                first: time,
                last: time,
                tcp_flags: 0x1b,
                tcp_flags_first: 2,
                ttl_min: 64,
                ttl_max: 64,
                tos: 0,
            };
            Flow {
                endpoints: [end(packets, bytes), end(0, 0)],
                protocol: 6,
                end_reason: EndReason::Idle,
                context: FlowContext::NONE,
                details: None,
                id: 0,
                collected: None,
            }
        })
        .collect()
}

/// Flows through an exporter, to the last acknowledgement.
fn ours(server: &str, table: &str, settings: &str, flows: &[Flow]) -> anyhow::Result<()> {
    let shape = TableShape::new(&ExportOptions::of_rows(TEMPLATE, false))?;
    let mut to = Receiver::parse(&format!("clickhouse://{server}/{table}?{settings}"))?;
    let encoder = NativeEncoder::new(&shape, to.is_old());
    to.set_schema(Schema { version: shape.version(), columns: encoder.columns() });
    let limits =
        Limits { rows: BATCH, block: 64_000_000, time: Duration::from_secs(600), ..Limits::default() };
    let delivery = Delivery::open(&to, Some(Sensor::new("bench")?), None, None, limits, 0)?;
    let mut exporter = BatchExporter::start(delivery, shape, Box::new(encoder))?;
    for some in flows.chunks(64) {
        exporter.export(some, Timestamp::EPOCH)?;
    }
    exporter.finish(Timestamp::EPOCH)?;
    let account = exporter.deliveries();
    ensure!(account.acknowledged.rows == flows.len() as u64, "{account:?} {:?}", exporter.take_events());
    Ok(())
}

/// The same flows through the crate, an insert for each batch.
fn theirs(server: &str, table: &str, compression: Compression, flows: &[Flow]) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = Client::default().with_url(format!("http://{server}"));
        let client = client.with_compression(compression).with_validation(false).with_database("bench");
        for batch in flows.chunks(BATCH as usize) {
            let mut insert = client.insert::<FlowRow>(table).await?;
            for flow in batch {
                insert.write(&row(flow)).await?;
            }
            insert.end().await?;
        }
        Ok(())
    })
}

fn row(flow: &Flow) -> FlowRow {
    let [source, destination] = &flow.endpoints;
    let octets = |address: IpAddr| -> Ipv6Addr {
        match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        }
    };
    FlowRow {
        flowStartNanoseconds: source.first.as_nanos(),
        flowEndNanoseconds: source.last.as_nanos(),
        sourceAddress: octets(source.address).octets(),
        sourceTransportPort: source.port,
        destinationAddress: octets(destination.address).octets(),
        destinationTransportPort: destination.port,
        protocolIdentifier: flow.protocol,
        octetDeltaCount: source.bytes,
        packetDeltaCount: source.packets,
        tcpControlBits: source.tcp_flags,
        flowEndReason: 1,
    }
}

/// Time of the processor of all threads of this process.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Both into a real server: its rows and sums must be those of the flows, and equal.
fn check(server: &str, flows: &[Flow]) -> anyhow::Result<()> {
    // Types that a server of 18.16 knows, by which the crate's rows have times as whole numbers.
    let columns = |time: &str| {
        format!(
            "flowStartNanoseconds {time}, flowEndNanoseconds {time}, sourceAddress FixedString(16), sourceTransportPort UInt16, \
             destinationAddress FixedString(16), destinationTransportPort UInt16, protocolIdentifier UInt8, \
             octetDeltaCount UInt64, packetDeltaCount UInt64, tcpControlBits UInt8, flowEndReason UInt8"
        )
    };
    ask(server, "CREATE DATABASE IF NOT EXISTS bench")?;
    for (table, time) in [("ours", "DateTime('UTC')"), ("theirs", "Int64")] {
        ask(server, &format!("DROP TABLE IF EXISTS bench.{table}"))?;
        ask(server, &format!("CREATE TABLE bench.{table} ({}) ENGINE = Memory", columns(time)))?;
    }
    ours(server, "bench.ours", "old=yes", flows)?;
    theirs(server, "theirs", Compression::Lz4, flows)?;
    let sums = "count(), sum(octetDeltaCount), sum(packetDeltaCount), sum(sourceTransportPort), sum(tcpControlBits), \
                sum(protocolIdentifier), sum(flowEndReason), uniqExact(sourceAddress), \
                sum(cityHash64(sourceAddress, destinationAddress, destinationTransportPort))";
    let sum = |table: &str, of_time: &str| {
        let times = ["flowStartNanoseconds", "flowEndNanoseconds"]
            .map(|time| format!("sum({})", of_time.replace('@', time)));
        ask(server, &format!("SELECT {sums}, {}, {} FROM bench.{table}", times[0], times[1]))
    };
    let ours = sum("ours", "toUInt64(toUInt32(@))")?;
    let theirs = sum("theirs", "toUInt64(intDiv(@, 1000000000))")?;
    ensure!(ours == theirs && ours.starts_with(&format!("{}\t", flows.len())), "{ours} and {theirs}");
    println!("the server has of both: {}", ours.trim());
    Ok(())
}

/// A question to a server, by HTTP.
fn ask(server: &str, text: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    let length = text.len();
    write!(stream, "POST / HTTP/1.0\r\nHost: {server}\r\nContent-Length: {length}\r\n\r\n{text}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.lines().next().is_some_and(|line| line.contains(" 200 ")), "{text}: {answer}");
    Ok(body.to_owned())
}

/// The sink in another process.
struct Sink {
    child: Child,
    address: String,
    words: BufReader<std::process::ChildStdout>,
}

impl Sink {
    fn start() -> anyhow::Result<Sink> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("sink")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut words = BufReader::new(child.stdout.take().context("it is piped")?);
        let mut address = String::new();
        words.read_line(&mut address)?;
        Ok(Sink { child, address: address.trim().to_owned(), words })
    }

    /// Octets of all bodies so far.
    fn octets(&mut self) -> anyhow::Result<u64> {
        self.child.stdin.as_mut().context("it is piped")?.write_all(b"\n")?;
        let mut line = String::new();
        self.words.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Takes every insert and keeps nothing. Tells the octets of bodies for each line of its standard input.
fn sink() -> anyhow::Result<()> {
    use std::sync::atomic::{AtomicU64, Ordering};
    static OCTETS: AtomicU64 = AtomicU64::new(0);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::with_capacity(1 << 16, stream);
                while let Ok(octets) = take_request(&mut reader) {
                    OCTETS.fetch_add(octets, Ordering::Relaxed);
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                    if reader.get_mut().write_all(answer).is_err() {
                        break;
                    }
                }
            });
        }
    });
    for line in std::io::stdin().lines() {
        line?;
        println!("{}", OCTETS.load(Ordering::Relaxed));
    }
    Ok(())
}

/// Reads a request to its end: the octets of its body, of a known length or in chunks.
fn take_request(reader: &mut BufReader<TcpStream>) -> anyhow::Result<u64> {
    let (mut length, mut is_chunked, mut line) = (0, false, String::new());
    loop {
        line.clear();
        ensure!(reader.read_line(&mut line)? > 0, "the end");
        let lower = line.trim().to_ascii_lowercase();
        match lower.split_once(':') {
            Some(("content-length", digits)) => length = digits.trim().parse()?,
            Some(("transfer-encoding", kind)) => is_chunked = kind.contains("chunked"),
            Some(("expect", _)) => reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?,
            _ if lower.is_empty() => break,
            _ => {}
        }
    }
    let mut octets = 0;
    let skip = |reader: &mut BufReader<TcpStream>, count: u64| {
        std::io::copy(&mut reader.take(count), &mut std::io::sink())
    };
    if !is_chunked {
        return Ok(skip(reader, length)?);
    }
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let count = u64::from_str_radix(line.trim(), 16)?;
        octets += skip(reader, count)?;
        line.clear();
        reader.read_line(&mut line)?;
        if count == 0 {
            return Ok(octets);
        }
    }
}
