use std::fs::{self, File};
use std::net::IpAddr;
use std::thread::sleep;

use ::parquet::file::properties::ReaderProperties;
use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::file::serialized_reader::ReadOptionsBuilder;
use ::parquet::record::{Field, Row};

use super::*;
use crate::export::table::{FlowTable, TableEncoder as _};
use crate::{EndReason, Endpoint, FlowContext};

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * SECOND;
/// 2026-11-22 20:00 UTC.
const EVENING: i64 = 1_795_377_600 * SECOND;

fn side(address: &str, port: u16, packets: u64, last: i64) -> Endpoint {
    Endpoint {
        address: address.parse::<IpAddr>().unwrap(),
        port,
        packets,
        bytes: 100 * packets,
        first: Timestamp::from_nanos(last - 1),
        last: Timestamp::from_nanos(last),
        tcp_flags: 0x1b,
        tcp_flags_first: 2,
        ttl_min: 60,
        ttl_max: 64,
        tos: 0,
    }
}

/// A flow of one direction that ended then.
fn one_way(packets: u64, last: i64) -> Flow {
    let endpoints = [side("10.0.0.1", 4321, packets, last), side("10.0.0.2", 80, 0, 0)];
    Flow {
        endpoints,
        protocol: 6,
        end_reason: EndReason::End,
        context: FlowContext::NONE,
        details: None,
        collected: None,
        id: 0,
    }
}

fn time(nanos: i64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn limits(size: u64, seconds: u64) -> ParquetLimits {
    ParquetLimits { size, time: Duration::from_secs(seconds) }
}

/// All that is in a directory, as paths below it.
fn all_below(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path.strip_prefix(folder).unwrap().display().to_string()),
            }
        }
    }
    found.sort();
    found
}

fn rows_of(path: &Path) -> Vec<Row> {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn field(row: &Row, name: &str) -> Field {
    let named = row.get_column_iter().find(|(column, _)| *column == name);
    named.unwrap_or_else(|| panic!("no {name}")).1.clone()
}

fn packets_below(folder: &Path) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for name in all_below(folder) {
        let (hour, file) = name.rsplit_once('/').unwrap();
        assert!(file.ends_with(".parquet"), "{name}");
        let packets: u64 = rows_of(&folder.join(&name))
            .iter()
            .map(|row| match field(row, "packetDeltaCount") {
                Field::ULong(packets) => packets,
                other => panic!("{other}"),
            })
            .sum();
        match sums.iter_mut().find(|(known, _)| known == hour) {
            Some((_, sum)) => *sum += packets,
            None => sums.push((hour.to_owned(), packets)),
        }
    }
    sums
}

fn writer(folder: &Path, template: &str, limits: ParquetLimits) -> ParquetWriter {
    ParquetWriter::create(folder, &ExportOptions::of_rows(template, false), limits).unwrap()
}

fn wait_for(mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        sleep(Duration::from_millis(10));
    }
    panic!("waited in vain");
}

#[test]
fn a_row_lies_in_the_hour_in_which_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    let ends =
        [(1, EVENING), (2, EVENING + HOUR - 1), (4, EVENING + HOUR), (8, EVENING - 1), (16, -1), (32, 0)];
    let flows: Vec<Flow> = ends.iter().map(|(packets, last)| one_way(*packets, *last)).collect();
    writer.export(&flows, time(EVENING)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();
    let wanted = [
        ("date=1969-12-31/hour=23", 16),
        ("date=1970-01-01/hour=00", 32),
        ("date=2026-11-22/hour=19", 8),
        ("date=2026-11-22/hour=20", 3),
        ("date=2026-11-22/hour=21", 4),
    ];
    assert_eq!(packets_below(folder.path()), wanted.map(|(name, packets)| (name.to_owned(), packets)));
    let account = writer.account();
    assert_eq!((account.flows, account.records, account.messages), (6, 6, 5));
    assert_eq!((account.packets.written, account.packets.lost, account.packets.buffered), (63, 0, 0));
}

/// Each direction has its own end.
#[test]
fn directions_may_lie_in_two_hours() {
    let folder = tempfile::tempdir().unwrap();
    let endpoints = [side("10.0.0.1", 4321, 3, EVENING - 1), side("10.0.0.2", 80, 5, EVENING)];
    let flow = Flow {
        endpoints,
        protocol: 6,
        end_reason: EndReason::End,
        context: FlowContext::NONE,
        details: None,
        collected: None,
        id: 0,
    };
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    writer.export(&[flow], time(EVENING)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();
    let sums: Vec<u64> = packets_below(folder.path()).into_iter().map(|(_, packets)| packets).collect();
    assert_eq!(sums, [3, 5]);
}

#[test]
fn values_are_those_of_the_flow() {
    let folder = tempfile::tempdir().unwrap();
    let template = "flowStartSeconds,flowEndMilliseconds,flowEndNanoseconds,sourceIPv6Address,destinationTransportPort,\
        octetDeltaCount,mplsTopLabelStackSection,observationDomainId,samplingInterval,communityId";
    let options = ExportOptions { domain: u32::MAX, ..ExportOptions::of_rows(template, true) };
    let mut writer = ParquetWriter::create(folder.path(), &options, ParquetLimits::default()).unwrap();
    writer.set_sampling(Sampling::Packets(100)).unwrap();
    let last = EVENING + 123_456_789;
    let v4 = Flow {
        endpoints: [side("10.0.0.1", 4321, 3, last), side("10.0.0.2", u16::MAX, 5, last)],
        protocol: 6,
        end_reason: EndReason::End,
        context: FlowContext { mpls: 0x12345, ..FlowContext::NONE },
        details: None,
        collected: None,
        id: 0,
    };
    let v6 =
        Flow { endpoints: [side("2001:db8::1", 1, 3, last), side("2001:db8::2", 2, 5, last)], ..v4.clone() };
    writer.export(&[v4.clone(), v6, v4], time(last)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();
    let names = all_below(folder.path());
    let rows = rows_of(&folder.path().join(&names[0]));
    let [first, second, third] = &rows[..] else { panic!("{rows:?}") };
    for row in [first, second] {
        for (name, wanted) in [
            ("flowStartSeconds", Field::TimestampMillis(EVENING / 1_000_000 + 123)),
            ("flowEndMilliseconds", Field::TimestampMillis(EVENING / 1_000_000 + 123)),
            ("sourceIPv4Address", Field::Str("10.0.0.1".to_owned())),
            ("sourceIPv6Address", Field::Null),
            ("destinationTransportPort", Field::UShort(u16::MAX)),
            ("octetDeltaCount", Field::ULong(300)),
            ("reverseOctetDeltaCount", Field::ULong(500)),
            ("mplsTopLabelStackSection", Field::Bytes(vec![0x12, 0x34, 0x50].into())),
            ("observationDomainId", Field::UInt(u32::MAX)),
            ("samplingInterval", Field::UInt(100)),
        ] {
            assert_eq!(field(row, name), wanted, "{name}");
        }
    }
    assert!(matches!(field(first, "communityId"), Field::Str(id) if id.starts_with("1:")));
    assert_eq!(field(third, "sourceIPv6Address"), Field::Str("2001:db8::1".to_owned()));
    assert_eq!(field(third, "sourceIPv4Address"), Field::Null);
}

#[test]
fn no_file_is_longer_than_it_may_be() {
    const SIZE: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "default", limits(SIZE, 3600));
    let flows: Vec<Flow> = (0..20_000)
        // Counters that do not compress well.
        .map(|at: i64| one_way(1 + at as u64 * 7919 % 65_521, EVENING + at * 7_919_123 % HOUR))
        .collect();
    for part in flows.chunks(100) {
        writer.export(part, time(EVENING)).unwrap();
    }
    writer.finish(Timestamp::EPOCH).unwrap();
    let names = all_below(folder.path());
    let lengths: Vec<u64> =
        names.iter().map(|name| fs::metadata(folder.path().join(name)).unwrap().len()).collect();
    assert!(lengths.len() > 3 && lengths.iter().all(|len| *len <= SIZE), "{lengths:?}");
    let account = writer.account();
    let packets: u64 = flows.iter().map(Flow::packets).sum();
    assert_eq!((account.packets.written, account.packets.buffered, account.packets.lost), (packets, 0, 0));
    assert_eq!((account.messages, account.octets), (lengths.len() as u64, lengths.iter().sum()));
    assert_eq!(packets_below(folder.path()), [("date=2026-11-22/hour=20".to_owned(), packets)]);
}

/// Old rows can be read while newer rows wait.
#[test]
fn files_are_closed_when_they_are_old() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "default", limits(1 << 30, 60));
    writer.export(&[one_way(1, EVENING)], time(EVENING)).unwrap();
    writer.export(&[one_way(2, EVENING + 59 * SECOND)], time(EVENING + 59 * SECOND)).unwrap();
    assert_eq!(writer.account().packets.buffered, 3);
    assert!(all_below(folder.path()).is_empty());
    writer.flush(time(EVENING + 60 * SECOND)).unwrap();
    wait_for(|| writer.account().packets.written == 3);
    writer.export(&[one_way(4, EVENING + 61 * SECOND)], time(EVENING + 61 * SECOND)).unwrap();
    assert_eq!(packets_below(folder.path()), [("date=2026-11-22/hour=20".to_owned(), 3)]);
    assert_eq!(writer.account().packets.buffered, 4);
    writer.finish(Timestamp::EPOCH).unwrap();
    assert_eq!(all_below(folder.path()).len(), 2);
    assert_eq!(packets_below(folder.path()), [("date=2026-11-22/hour=20".to_owned(), 7)]);
}

/// Times that leap about: few hours are open at once, and no row is lost.
#[test]
fn hours_that_are_open_are_few() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    let hours = [0, 1, 2, 3, 0, 4, 0, 5, 1, 1_000_000, i64::MAX / HOUR, -2_000_000, i64::MIN / HOUR + 1, 0];
    for (at, hour) in hours.iter().enumerate() {
        writer.export(&[one_way(1 << at, hour.saturating_mul(HOUR))], time(0)).unwrap();
        assert!(writer.hours.len() <= HOURS_MAX);
    }
    // That which got the last row is kept.
    assert!(writer.hours.iter().any(|hour| hour.number == 0));
    writer.finish(Timestamp::EPOCH).unwrap();
    let sums = packets_below(folder.path());
    assert_eq!(sums.iter().map(|(_, packets)| packets).sum::<u64>(), (1 << hours.len()) - 1);
    let first = sums.iter().find(|(name, _)| name == "date=1970-01-01/hour=00").unwrap();
    assert_eq!(first.1, 1 << 0 | 1 << 4 | 1 << 6 | 1 << 13);
}

/// An hour that cannot be written: its packets are reported as lost; the others are there.
#[test]
fn rows_that_cannot_be_written_are_lost() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("date=2026-11-22")).unwrap();
    fs::write(folder.path().join("date=2026-11-22/hour=21"), "in the way").unwrap();
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    let ends = [(1, EVENING), (2, EVENING + HOUR), (4, EVENING + 2 * HOUR)];
    let flows: Vec<Flow> = ends.iter().map(|(packets, last)| one_way(*packets, *last)).collect();
    writer.export(&flows, time(EVENING)).unwrap();
    let failure = writer.finish(Timestamp::EPOCH).unwrap_err().to_string();
    assert!(failure.contains("hour=21") && failure.contains("lost"), "{failure}");
    let account = writer.account();
    assert_eq!((account.packets.written, account.packets.lost, account.packets.buffered), (5, 2, 0));
    assert_eq!((account.messages, account.messages_lost), (3, 1));
    // The error is reported once.
    assert!(writer.finish(Timestamp::EPOCH).is_ok());
    let refused = ParquetWriter::create(
        &folder.path().join("date=2026-11-22/hour=21"),
        &ExportOptions::default(),
        ParquetLimits::default(),
    );
    assert!(refused.err().unwrap().to_string().contains("cannot export to"));
}

#[test]
fn a_dropped_writer_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "packetDeltaCount", limits(4096, 3600));
    for _ in 0..600 {
        writer.export(&[one_way(1, EVENING)], time(EVENING)).unwrap();
    }
    let mut whole = writer.account().packets.written;
    drop(writer);
    // Files that had become whole meanwhile are still there.
    let rows: u64 = packets_below(folder.path()).iter().map(|(_, packets)| packets).sum();
    assert!(whole <= rows && rows < 600, "{whole} {rows}");
    whole = rows;
    assert_eq!(packets_below(folder.path()).iter().map(|(_, packets)| packets).sum::<u64>(), whole);
}

#[test]
fn writers_share_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let mut writers: Vec<ParquetWriter> =
        (0..3).map(|_| writer(folder.path(), "default", ParquetLimits::default())).collect();
    for (at, writer) in writers.iter_mut().enumerate() {
        writer.export(&[one_way(1 << at, EVENING)], time(EVENING)).unwrap();
    }
    writers.iter_mut().for_each(|writer| writer.finish(Timestamp::EPOCH).unwrap());
    assert_eq!(all_below(folder.path()).len(), 3);
    assert_eq!(packets_below(folder.path()), [("date=2026-11-22/hour=20".to_owned(), 7)]);
}

/// The text of an address's column, or of nothing.
fn text(row: &Row, name: &str) -> Option<String> {
    match field(row, name) {
        Field::Str(text) => Some(text),
        _ => None,
    }
}

#[test]
fn rows_are_sorted_by_address() {
    let folder = tempfile::tempdir().unwrap();
    let template =
        "packetDeltaCount,sourceIPv4Address,destinationIPv4Address,flowEndNanoseconds,sourceTransportPort";
    let mut writer = writer(folder.path(), template, ParquetLimits::default());
    // IPv6 addresses that are alike in their first 16 characters, and IPv4 addresses of several lengths.
    let address = |n: u64| match n % 3 {
        0 => format!("10.{}.{}.7", n * 7 % 31, n % 5),
        1 => format!("2001:db8:aaaa:bbbb:{:x}::{:x}", n * 11 % 13, n % 2 + 1),
        _ => format!("192.168.0.{}", n * 13 % 200),
    };
    let flows = (0..2000_u64).map(|n| {
        let mut flow = one_way(n + 1, EVENING + n as i64);
        let of_a_kind = |of: u64| address(n % 3 + 3 * of).parse().unwrap();
        flow.endpoints[0].address = of_a_kind(n * 17 % 101);
        flow.endpoints[1].address = of_a_kind(n * 29 % 97);
        flow
    });
    let flows: Vec<Flow> = flows.collect();
    writer.export(&flows, time(EVENING)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();

    let [name] = &all_below(folder.path())[..] else { panic!("several files") };
    let rows = rows_of(&folder.path().join(name));
    assert_eq!(rows.len(), flows.len());
    let key = |row: &Row| {
        let sides = [
            ("sourceIPv4Address", "sourceIPv6Address"),
            ("destinationIPv4Address", "destinationIPv6Address"),
        ];
        sides.map(|(four, six)| {
            (text(row, four).is_none(), text(row, four).or_else(|| text(row, six)).unwrap())
        })
    };
    for pair in rows.windows(2) {
        let (before, after) = (key(&pair[0]), key(&pair[1]));
        assert!(before <= after, "{before:?} {after:?}");
        let end = |row: &Row| field(row, "flowEndNanoseconds").to_string();
        assert!(before != after || end(&pair[0]) <= end(&pair[1]), "{}", pair[0]);
    }
    // Each row is whole: its columns moved together.
    for row in &rows {
        let Field::ULong(packets) = field(row, "packetDeltaCount") else { panic!("{row}") };
        let flow = &flows[packets as usize - 1];
        assert_eq!(key(row).map(|(_, text)| text), [0, 1].map(|at| flow.endpoints[at].address.to_string()));
        assert_eq!(field(row, "sourceTransportPort"), Field::UShort(flow.endpoints[0].port));
    }
}

#[test]
fn files_tell_which_addresses_they_lack() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    writer.export(&[one_way(1, EVENING)], time(EVENING)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();

    let [name] = &all_below(folder.path())[..] else { panic!("several files") };
    let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
    let options = ReadOptionsBuilder::new().with_reader_properties(properties).build();
    let file = File::open(folder.path().join(name)).unwrap();
    let reader = SerializedFileReader::new_with_options(file, options).unwrap();
    let group = reader.get_row_group(0).unwrap();
    let columns = group.metadata().columns();
    let at = |name: &str| columns.iter().position(|column| column.column_path().string() == name).unwrap();
    let source = group.get_column_bloom_filter(at("sourceIPv4Address")).expect("it has one");
    assert!(source.check(&"10.0.0.1") && !source.check(&"10.0.0.2"));
    assert!(group.get_column_bloom_filter(at("packetDeltaCount")).is_none());
    let sorted = group.metadata().sorting_columns().expect("rows are sorted");
    assert_eq!(sorted[0].column_idx as usize, at("sourceIPv4Address"));
}

#[test]
fn blocks_have_the_rows_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let flow = |number: u64| Flow {
        endpoints: [
            side(&format!("10.0.{}.1", number % 50), 9, number + 1, EVENING),
            side(["2001:db8::1", "10.0.0.2"][number as usize % 2], 80, number % 3, EVENING),
        ],
        ..one_way(1, EVENING)
    };
    // Addresses of one version in a flow.
    let flows: Vec<Flow> = (0..400).map(|number| flow(2 * number + 1)).collect();
    let mut writer = writer(folder.path(), "default", ParquetLimits::default());
    writer.export(&flows, time(EVENING)).unwrap();
    writer.finish(Timestamp::EPOCH).unwrap();
    let [name] = &all_below(folder.path())[..] else { panic!("several files") };
    let mut expected: Vec<String> = rows_of(&folder.path().join(name)).iter().map(Row::to_string).collect();

    let options = ExportOptions::of_rows(&parquet_template("default"), false);
    let shape = crate::export::TableShape::new(&options).unwrap();
    let mut table = FlowTable::new(&shape);
    table.push(&shape, &flows, Sampling::NONE);
    let parts = ParquetEncoder::new(&shape).encode(&table, 10_000).unwrap();
    assert!(parts.len() > 3, "{} parts", parts.len());
    let mut found = Vec::new();
    for part in &parts {
        let path = folder.path().join("block");
        fs::write(&path, &part.bytes).unwrap();
        let rows = rows_of(&path);
        assert_eq!(rows.len() as u64, part.rows);
        assert!(part.bytes.len() < 20_000, "{} bytes", part.bytes.len());
        found.extend(rows.iter().map(Row::to_string));
    }
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}
