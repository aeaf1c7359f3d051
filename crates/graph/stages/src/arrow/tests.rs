use std::io::{self, Cursor, Write};
use std::sync::{Arc, Mutex};

use arrow_array::{
    Array, BinaryArray, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_ipc::reader::StreamReader;
use tapline_graph::{Out, Packets, Stage, TickContext};
use tapline_packet::{Batch, ClockReading, Interface, LinkType, Meta, Record, Timestamp};
use tapline_source::Error;
use tapline_testkit::frames::{Ethernet, Host, IpPair, IpVersion, Tcp, flags};

use super::columns::Columns;
use super::output::{ArrowOutput, ROWS_MAX};

/// Keeps the written bytes; takes no more than `room` bytes.
#[derive(Clone)]
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: usize,
}

impl Pipe {
    fn new(room: usize) -> Pipe {
        Pipe { bytes: Arc::default(), room }
    }

    fn batches(&self) -> Vec<RecordBatch> {
        let bytes = self.bytes.lock().unwrap().clone();
        StreamReader::try_new(Cursor::new(bytes), None).unwrap().collect::<Result<_, _>>().unwrap()
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut kept = self.bytes.lock().unwrap();
        let len = bytes.len().min(self.room - kept.len());
        if len == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        kept.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn output(columns: Option<&str>, pipe: &Pipe, is_live: bool) -> ArrowOutput<Pipe> {
    ArrowOutput::new(Columns::parse(columns).unwrap(), pipe.clone(), is_live)
}

/// Pushes `count` packets with these bytes, a nanosecond apart.
fn push(output: &mut ArrowOutput<Pipe>, bytes: &[u8], count: usize) -> Result<(), Error> {
    let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
    let len = bytes.len() as u32;
    let record = |at: usize| {
        let meta = Meta { wire_len: len + 1, timestamp: Timestamp::from_nanos(at as i64), ..Meta::default() };
        Record { offset: 0, cap_len: len, options_len: 0, meta }
    };
    let records: Vec<Record> = (0..count).map(record).collect();
    records.chunks(200).try_for_each(|part| {
        let mut packets = Packets::all(Batch::new(bytes, part), &interfaces, ClockReading::default());
        output.push(&mut packets, &mut Out::nowhere())
    })
}

fn finish(output: &mut ArrowOutput<Pipe>) -> Result<(), Error> {
    output.finish(&TickContext::new(ClockReading::default(), &[]), &mut Out::nowhere())
}

/// Written, lost and buffered.
fn account(output: &ArrowOutput<Pipe>) -> (u64, u64, u64) {
    let account = output.counters().output.expect("it is an output");
    (account.written, account.lost, account.buffered)
}

/// A SYN from port 40000 of host 1 to port 443 of host 2.
fn syn() -> Vec<u8> {
    let tcp = Tcp { src: 40_000, dst: 443, flags: flags::SYN, ..Tcp::default() };
    let (from, to) = (Host::number(1), Host::number(2));
    Ethernet::between(&from, &to).ip(&tcp.packet(IpPair::between(&from, &to, IpVersion::V4), b"payload"))
}

fn column<'a, T: Array + 'static>(batch: &'a RecordBatch, name: &str) -> &'a T {
    batch.column_by_name(name).unwrap().as_any().downcast_ref().unwrap()
}

#[test]
fn values_are_those_of_the_packet() {
    let pipe = Pipe::new(1 << 20);
    let mut output = output(None, &pipe, false);
    push(&mut output, &syn(), 3).unwrap();
    finish(&mut output).unwrap();
    let [batch] = &pipe.batches()[..] else { panic!("one batch") };
    assert_eq!(batch.num_rows(), 3);
    assert_eq!(column::<TimestampNanosecondArray>(batch, "time").values(), &[0, 1, 2]);
    assert_eq!(column::<StringArray>(batch, "interface").value(2), "eth0");
    assert_eq!(column::<Int64Array>(batch, "captured").value(0), syn().len() as i64);
    assert_eq!(column::<Int64Array>(batch, "length").value(0), syn().len() as i64 + 1);
    assert!(column::<Int32Array>(batch, "vlan").is_null(0));
    let text = |name| column::<StringArray>(batch, name).value(1).to_owned();
    assert_eq!([text("src"), text("dst")], [1, 2].map(|number| Host::number(number).v4.to_string()));
    assert_eq!(column::<Int16Array>(batch, "protocol").value(0), 6);
    assert_eq!(column::<Int32Array>(batch, "sport").value(0), 40_000);
    assert_eq!(column::<Int32Array>(batch, "dport").value(0), 443);
    assert_eq!(column::<Int16Array>(batch, "tcp_flags").value(0), i16::from(flags::SYN));
    assert!(text("flow").starts_with("1:"));
    assert_eq!(column::<BinaryArray>(batch, "data").value(0), syn());
    assert_eq!(account(&output), (3, 0, 0));
}

/// Cut at every byte: fields that are not there are null, and all bytes are kept.
#[test]
fn packets_cut_anywhere_have_nulls() {
    let whole = syn();
    for len in 0..whole.len() {
        let pipe = Pipe::new(1 << 20);
        let mut output = output(Some("src,dport,tcp_flags,flow,data"), &pipe, false);
        push(&mut output, &whole[..len], 1).unwrap();
        finish(&mut output).unwrap();
        let batch = &pipe.batches()[0];
        assert_eq!(column::<BinaryArray>(batch, "data").value(0), &whole[..len]);
        let nulls =
            ["src", "dport", "tcp_flags", "flow"].map(|name| batch.column_by_name(name).unwrap().is_null(0));
        // The IP header ends at 34, the ports at 38, the flags at 48.
        assert_eq!(nulls, [len < 34, len < 38, len < 48, len < 38], "{len} bytes");
    }
}

#[test]
fn columns_come_as_they_are_named() {
    let names = |columns: &str| {
        let columns = Columns::parse(Some(columns)).map_err(|error| error.to_string())?;
        Ok::<_, String>(
            columns.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(names("dst, time").unwrap(), ["dst", "time"]);
    assert!(names("time,dts").unwrap_err().starts_with("there is no column \"dts\"; there are: time, "));
    assert_eq!(names("src,src").unwrap_err(), "the column src is named twice");
    assert!(names("").is_err());
}

#[test]
fn batches_are_bounded() {
    let pipe = Pipe::new(1 << 30);
    let mut output = output(Some("length"), &pipe, false);
    push(&mut output, &syn(), ROWS_MAX + 5).unwrap();
    output.idle().unwrap();
    assert_eq!(account(&output), (ROWS_MAX as u64, 0, 5));
    finish(&mut output).unwrap();
    let rows: Vec<usize> = pipe.batches().iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [ROWS_MAX, 5]);
    let pipe = Pipe::new(1 << 30);
    let mut output = self::output(Some("data"), &pipe, false);
    push(&mut output, &vec![7; 1 << 20], 20).unwrap();
    finish(&mut output).unwrap();
    let rows: Vec<usize> = pipe.batches().iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [8, 8, 4]);
}

#[test]
fn a_live_stream_waits_for_no_full_batch() {
    let pipe = Pipe::new(1 << 20);
    let mut output = output(Some("length"), &pipe, true);
    push(&mut output, &syn(), 3).unwrap();
    output.idle().unwrap();
    output.idle().unwrap();
    assert_eq!(account(&output), (3, 0, 0));
    finish(&mut output).unwrap();
    assert_eq!(pipe.batches().len(), 1);
}

/// Without a packet there is a stream with a schema all the same.
#[test]
fn an_empty_stream_has_its_schema() {
    let pipe = Pipe::new(1 << 20);
    let mut output = output(None, &pipe, false);
    finish(&mut output).unwrap();
    assert!(pipe.batches().is_empty());
    let reader = StreamReader::try_new(Cursor::new(pipe.bytes.lock().unwrap().clone()), None).unwrap();
    assert_eq!(reader.schema().fields().len(), 13);
}

/// A reader that leaves at any place: the batch that it did not take whole is lost, and nothing is written behind.
#[test]
fn a_reader_that_leaves_loses_its_batch() {
    let whole = Pipe::new(1 << 20);
    let mut output = output(Some("time,data"), &whole, true);
    push(&mut output, &syn(), 3).unwrap();
    output.idle().unwrap();
    let len = whole.bytes.lock().unwrap().len();
    for room in 0..len {
        let pipe = Pipe::new(room);
        let mut output = self::output(Some("time,data"), &pipe, true);
        push(&mut output, &syn(), 3).unwrap();
        assert!(matches!(output.idle(), Err(Error::BrokenPipe { .. })), "{room} bytes");
        push(&mut output, &syn(), 2).unwrap();
        assert!(finish(&mut output).is_err());
        assert_eq!(account(&output), (0, 5, 0));
        assert_eq!(pipe.bytes.lock().unwrap().len(), room);
    }
}
