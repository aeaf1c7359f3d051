//! Messages held to the letter of their documents, by a reader that believes nothing.

use std::collections::BTreeMap;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, TcpListener, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::Duration;

use socket2::SockRef;
use tapline_flow::export::{ExportOptions, ExportTarget, Exporter, FlowSink as _, Version};
use tapline_flow::{Details, Flow, Sampling, Tls};
use tapline_packet::Timestamp;
use tapline_testkit::netns::{Namespace, namespaces_or_skip};

use crate::made_flows::{START, flows};
use crate::reserved_port;

/// Datagrams of an exporter that was given these flows, some at a time; one of `sampling` packets was metered.
fn datagrams(options: &ExportOptions, sampling: u32, flows: &[Flow]) -> Vec<Vec<u8>> {
    datagrams_to("127.0.0.1:0", options, sampling, flows)
}

fn datagrams_to(at: &str, options: &ExportOptions, sampling: u32, flows: &[Flow]) -> Vec<Vec<u8>> {
    let socket = UdpSocket::bind(at).unwrap();
    socket.set_nonblocking(true).unwrap();
    let to = ExportTarget::Udp(socket.local_addr().unwrap().to_string());
    let mut exporter = Exporter::open(&[to], options).unwrap();
    exporter.set_sampling(Sampling::Packets(sampling)).unwrap();
    let (mut all, mut buffer) = (Vec::new(), vec![0; 70_000]);
    let mut now = Timestamp::EPOCH;
    for (at, chunk) in flows.chunks(30).enumerate() {
        // A flow ends before it is exported.
        now = chunk.iter().map(Flow::last).max().unwrap_or_default().plus_nanos(60_000_000_000).max(now);
        exporter.export(chunk, now).unwrap();
        if at % 4 == 3 || (at + 1) * 30 >= flows.len() {
            exporter.flush(now).unwrap();
        }
        while let Ok(len) = socket.recv(&mut buffer) {
            all.push(buffer[..len].to_vec());
        }
    }
    let account = exporter.account();
    let left_out: u64 =
        flows.iter().filter(|flow| flow.endpoints[0].address.is_ipv6()).map(Flow::packets).sum();
    let left_out = if options.version == Version::V5 { left_out } else { 0 };
    let packets: u64 = flows.iter().map(Flow::packets).sum();
    assert_eq!(
        (account.packets.written, account.left_out, account.packets.lost),
        (packets - left_out, left_out, left_out)
    );
    assert_eq!((account.messages, account.flows), (all.len() as u64, flows.len() as u64));
    all
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A data record: the bytes of each field, by enterprise and number.
type Record = BTreeMap<(u32, u16), Vec<u8>>;

#[derive(Default)]
struct Reader {
    /// Fields of templates: enterprise, number, length.
    templates: BTreeMap<u16, Vec<(u32, u16, usize)>>,
    records: Vec<Record>,
}

/// Contents of one message: templates and options templates, data records of flows and of options.
#[derive(Default)]
struct Counts {
    templates: u64,
    data: u64,
}

impl Reader {
    /// Reads all sets; each must be whole, known, and padded with zeros only.
    fn sets(&mut self, mut sets: &[u8], is_v9: bool) -> Counts {
        let mut counts = Counts::default();
        while !sets.is_empty() {
            let (id, len) = (number(&sets[..2]) as u16, number(&sets[2..4]) as usize);
            assert!(len >= 4 && len <= sets.len() && len.is_multiple_of(4), "set {id} of {len}");
            let (set, rest) = sets.split_at(len);
            sets = rest;
            match (id, is_v9) {
                (0, true) | (2, false) => counts.templates += self.template_set(&set[4..], 4, is_v9),
                (1, true) | (3, false) => counts.templates += self.template_set(&set[4..], 6, is_v9),
                (256.., _) => counts.data += self.data_set(id, &set[4..]),
                _ => panic!("set {id} is none of this version"),
            }
        }
        counts
    }

    fn template_set(&mut self, mut rest: &[u8], header_len: usize, is_v9: bool) -> u64 {
        let mut count = 0;
        while rest.len() >= header_len {
            let id = number(&rest[..2]) as u16;
            let fields = match (header_len, is_v9) {
                (6, true) => ((number(&rest[2..4]) + number(&rest[4..6])) / 4) as usize,
                _ => number(&rest[2..4]) as usize,
            };
            rest = &rest[header_len..];
            let mut template = Vec::new();
            for _ in 0..fields {
                let (kind, len) = (number(&rest[..2]) as u16, number(&rest[2..4]) as usize);
                rest = &rest[4..];
                let enterprise = if kind & 0x8000 != 0 && !is_v9 {
                    let enterprise = number(&rest[..4]) as u32;
                    rest = &rest[4..];
                    enterprise
                } else {
                    0
                };
                template.push((enterprise, kind & 0x7fff, len));
            }
            assert!(id >= 256 && !template.is_empty());
            self.templates.insert(id, template);
            count += 1;
        }
        assert!(rest.iter().all(|byte| *byte == 0));
        count
    }

    fn data_set(&mut self, id: u16, mut rest: &[u8]) -> u64 {
        let template = self.templates.get(&id).expect("a template came before");
        let record_len: usize =
            template.iter().map(|(_, _, len)| if *len == 65_535 { 1 } else { *len }).sum();
        let mut count = 0;
        while rest.len() >= record_len {
            let mut record = Record::new();
            for &(enterprise, kind, len) in template {
                let len = if len == 65_535 { variable(&mut rest) } else { len };
                let (value, behind) = rest.split_at(len);
                record.insert((enterprise, kind), value.to_vec());
                rest = behind;
            }
            self.records.push(record);
            count += 1;
        }
        assert!(rest.len() < 4 && rest.iter().all(|byte| *byte == 0), "padding");
        count
    }

    fn sum(&self, field: (u32, u16)) -> u64 {
        // The first field of an options record is a scope, whose numbers are other ones.
        let flows = self.records.iter().filter(|record| !record.contains_key(&(0, 34)));
        flows.filter_map(|record| record.get(&field)).map(|value| number(value)).sum()
    }
}

/// A length that precedes its data.
fn variable(rest: &mut &[u8]) -> usize {
    let (len, header) = match rest[0] {
        255 => (number(&rest[1..3]) as usize, 3),
        len => (usize::from(len), 1),
    };
    assert!(header == 1 || len >= 255, "as short as can be");
    *rest = &rest[header..];
    len
}

fn sums(flows: &[Flow]) -> (u64, u64) {
    (flows.iter().map(Flow::packets).sum(), flows.iter().map(Flow::bytes).sum())
}

#[test]
fn ipfix_to_the_letter() {
    for (biflow, sampling) in [(false, 1), (true, 1), (false, 100)] {
        let options = ExportOptions { biflow, domain: 77, template_messages: 5, ..ExportOptions::default() };
        let flows = flows(1, 700);
        let (mut reader, mut sequence, mut since) = (Reader::default(), 0, 5);
        for datagram in datagrams(&options, sampling, &flows) {
            assert!(datagram.len() <= 1472);
            assert_eq!([number(&datagram[..2]), number(&datagram[2..4])], [10, datagram.len() as u64]);
            assert_eq!((number(&datagram[8..12]), number(&datagram[12..16])), (sequence, 77));
            let counts = reader.sets(&datagram[16..], false);
            sequence += counts.data;
            since = if counts.templates > 0 { 1 } else { since + 1 };
            assert!(since <= 5, "templates come again");
        }
        let (packets, bytes) = sums(&flows);
        let reverse = |id| reader.sum((29305, id));
        assert_eq!((reader.sum((0, 2)) + reverse(2), reader.sum((0, 1)) + reverse(1)), (packets, bytes));
        assert_eq!(reverse(2) > 0, biflow);
        let options: Vec<&Record> =
            reader.records.iter().filter(|record| record.contains_key(&(0, 34))).collect();
        assert_eq!(options.is_empty(), sampling == 1);
        assert!(
            options.iter().all(|record| number(&record[&(0, 34)]) == 100 && number(&record[&(0, 149)]) == 77)
        );
        // To the millisecond, each in its own direction.
        let starts =
            reader.records.iter().filter_map(|record| record.get(&(0, 152))).map(|value| number(value));
        assert!(starts.min() == Some(START as u64 / 1_000_000));
    }
}

/// The example's number (RFC 5612), and another.
const ENTERPRISES: [u32; 2] = [32473, 4711];

/// Texts of all lengths: each is whole if a message has room for it, and the meaning of our own numbers is sent
/// before (RFC 5610).
#[test]
fn details_to_the_letter() {
    for (mtu, enterprise, biflow) in
        [(1500, ENTERPRISES[0], false), (1500, ENTERPRISES[1], true), (700, ENTERPRISES[0], false)]
    {
        let template = "default,tcp,dns,tls,http,payload".to_owned();
        let options = ExportOptions {
            mtu,
            enterprise,
            biflow,
            template,
            template_messages: 7,
            ..ExportOptions::default()
        };
        let mut flows = flows(11, 300);
        for (at, flow) in flows.iter_mut().enumerate() {
            let text = |len: usize| "x".repeat(len.min(255)).into_boxed_str();
            let tls = Tls { server_name: text(at), alpn: text(at / 2), ja3: text(32), ..Tls::default() };
            let payload = [vec![1; at].into(), vec![2; at * 2].into()];
            flow.details = Some(Box::new(Details { tls: Some(tls), payload, ..Details::default() }));
        }
        let (mut reader, mut sequence) = (Reader::default(), 0);
        for datagram in datagrams(&options, 1, &flows) {
            assert!(datagram.len() + 28 <= mtu.into(), "{}", datagram.len());
            assert_eq!(number(&datagram[8..12]), sequence);
            sequence += reader.sets(&datagram[16..], false).data;
        }
        let (packets, bytes) = sums(&flows);
        let both = |id| reader.sum((0, id)) + reader.sum((29305, id));
        assert_eq!((both(2), both(1)), (packets, bytes));
        // Each of our own elements has a type and a name.
        let told: BTreeMap<u16, String> = reader
            .records
            .iter()
            .filter_map(|record| {
                let name = String::from_utf8(record.get(&(0, 341))?.clone()).expect("a name");
                assert_eq!(number(&record[&(0, 346)]), enterprise.into());
                Some((number(&record[&(0, 303)]) as u16, name))
            })
            .collect();
        let records: Vec<&Record> =
            reader.records.iter().filter(|record| record.contains_key(&(0, 1))).collect();
        let used = records.iter().flat_map(|record| record.keys()).filter(|(of, _)| *of == enterprise);
        assert!(used.clone().all(|(_, id)| told.contains_key(id)));
        assert_eq!((told[&64].as_str(), told.contains_key(&(80 | 0x4000))), ("tlsServerName", biflow));
        let longest = records.iter().map(|record| record[&(enterprise, 64)].len()).max();
        if mtu == 1500 {
            assert_eq!(longest, Some(255));
            let empty = records.iter().filter(|record| record[&(enterprise, 64)].is_empty()).count();
            assert!(
                empty <= 2 && records.iter().any(|record| record[&(enterprise, 80)].len() > 254),
                "{empty}"
            );
        } else {
            assert!((100..255).contains(&longest.unwrap()), "cut to what has room: {longest:?}");
        }
    }
}

#[test]
fn netflow_9_to_the_letter() {
    let options =
        ExportOptions { version: Version::V9, domain: 9, template_messages: 5, ..ExportOptions::default() };
    let flows = flows(2, 700);
    let (mut reader, mut known) = (Reader::default(), 0);
    for (at, datagram) in datagrams(&options, 10, &flows).iter().enumerate() {
        assert!(datagram.len() <= 1472 && datagram.len().is_multiple_of(4));
        let [uptime, seconds, sequence, source] = [4, 8, 12, 16].map(|at| number(&datagram[at..at + 4]));
        assert_eq!((number(&datagram[..2]), sequence, source), (9, at as u64, 9), "messages are counted");
        let counts = reader.sets(&datagram[20..], true);
        assert_eq!(number(&datagram[2..4]), counts.templates + counts.data, "all records are counted");
        // The subtraction gives the millisecond.
        let boot = seconds * 1000 - uptime;
        for record in reader.records[known..].iter().filter(|record| record.contains_key(&(0, 22))) {
            let first = boot + number(&record[&(0, 22)]);
            let last = boot + number(&record[&(0, 21)]);
            assert_eq!(last - first, 70);
            assert!((0..700).contains(&(first as i64 - START / 1_000_000)), "{first}");
        }
        known = reader.records.len();
    }
    let (packets, bytes) = sums(&flows);
    assert_eq!((reader.sum((0, 2)), reader.sum((0, 1))), (packets, bytes));
}

#[test]
fn netflow_5_to_the_letter() {
    let options = ExportOptions { version: Version::V5, domain: 0x0203, ..ExportOptions::default() };
    let flows = flows(3, 700);
    let (mut sequence, mut packets) = (0, 0);
    for datagram in datagrams(&options, 100, &flows) {
        let count = number(&datagram[2..4]);
        assert!((1..=30).contains(&count) && datagram.len() as u64 == 24 + 48 * count);
        assert_eq!((number(&datagram[..2]), number(&datagram[16..20])), (5, sequence));
        assert_eq!((&datagram[20..22], number(&datagram[22..24])), (&[2, 3][..], 2 << 14 | 100));
        sequence += count;
        let boot = number(&datagram[8..12]) * 1000 - number(&datagram[4..8]);
        for record in datagram[24..].chunks(48) {
            packets += number(&record[16..20]);
            let [first, last] = [24, 28].map(|at| boot + number(&record[at..at + 4]));
            assert_eq!(last - first, 70);
            assert!((0..700).contains(&(first as i64 - START / 1_000_000)));
        }
    }
    let v4: u64 = flows.iter().filter(|flow| flow.endpoints[0].address.is_ipv4()).map(Flow::packets).sum();
    assert_eq!(packets, v4);
}

/// The exporter's uptime restarts before it would wrap after 49 days, and for flows that are older than its start.
#[test]
fn uptime_never_wraps() {
    const DAY: i64 = 86_400_000_000_000;
    let mut all = flows(4, 60);
    for (at, flow) in all.iter_mut().enumerate() {
        let shift = [0, 100 * DAY, -3 * DAY, 20 * DAY][at % 4];
        for side in flow.endpoints.iter_mut().filter(|side| side.packets > 0) {
            (side.first, side.last) = (side.first.plus_nanos(shift), side.last.plus_nanos(shift));
        }
    }
    let options = ExportOptions {
        version: Version::V9,
        template_time: Duration::from_secs(3600),
        ..ExportOptions::default()
    };
    let mut reader = Reader::default();
    let mut firsts = Vec::new();
    for datagram in datagrams(&options, 1, &all) {
        let [uptime, seconds] = [4, 8].map(|at| number(&datagram[at..at + 4]) as u32);
        let before = reader.records.len();
        reader.sets(&datagram[20..], true);
        let boot = (seconds as i64 * 1000).wrapping_sub(i64::from(uptime as i32));
        firsts.extend(reader.records[before..].iter().map(|record| boot + number(&record[&(0, 22)]) as i64));
    }
    let endpoints = all.iter().flat_map(|flow| flow.endpoints).filter(|side| side.packets > 0);
    let mut wanted: Vec<i64> = endpoints.map(|side| side.first.as_nanos() / 1_000_000).collect();
    wanted.sort_unstable();
    firsts.sort_unstable();
    assert_eq!(firsts, wanted);
}

#[test]
fn templates_that_cannot_be_are_refused() {
    let to = [ExportTarget::Udp("127.0.0.1:9".to_owned())];
    let refused = |options: ExportOptions| {
        Exporter::open(&to, &options).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let template = |text: &str| ExportOptions { template: text.to_owned(), ..ExportOptions::default() };
    assert!(refused(template("octetDeltaCount,octetDeltaCount")).contains("twice"));
    assert!(refused(template("sourceIPv4Address,sourceIPv6Address")).contains("twice"));
    assert!(refused(template("nonsense")).contains("`nonsense`"));
    assert!(refused(ExportOptions { mtu: 256, biflow: true, ..ExportOptions::default() }).contains("--mtu"));
    let v9 = ExportOptions { version: Version::V9, ..template("initialTCPFlags") };
    assert!(refused(v9).contains("no number"));
    let v9 = ExportOptions { version: Version::V9, ..template("default,application") };
    assert!(refused(v9).contains("no length"));
    assert_eq!(refused(template("protocolIdentifier")), "");

    let kept = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(kept.path(), "what was exported before").unwrap();
    let error =
        Exporter::open(&[ExportTarget::File(kept.path().to_owned())], &template("nonsense")).err().unwrap();
    assert!(error.to_string().contains("`nonsense`"));
    assert_eq!(std::fs::read_to_string(kept.path()).unwrap(), "what was exported before");
}

/// For any MTU, and at any time of the sampling options: templates, options and a record fit into it, or it is
/// refused.
#[test]
fn messages_fit_the_mtu() {
    let (flows, mut accepted) = (flows(5, 40), 0);
    let to = [ExportTarget::Udp("127.0.0.1:9".to_owned())];
    for (mtu, sampling) in (256..480).flat_map(|mtu| [(mtu, 1), (mtu, 100)]) {
        for version in [Version::V5, Version::V9, Version::Ipfix] {
            let options = ExportOptions { mtu, version, template_messages: 1, ..ExportOptions::default() };
            if Exporter::open(&to, &options).is_err() {
                assert!(mtu < 400, "{mtu} is enough");
                continue;
            }
            for datagram in datagrams(&options, sampling, &flows) {
                assert!(datagram.len() + 28 <= mtu.into(), "{version:?}: {} octets in {mtu}", datagram.len());
            }
            accepted += 1;
        }
    }
    assert!(accepted > 600, "{accepted}");
}

/// Runs a test of this program in a namespace that has `::1`, where the machine has switched it off.
fn again_with_ipv6(test: &str) {
    if !Path::new("/proc/net/if_inet6").exists() {
        return eprintln!("skipped: {test}: this kernel has no IPv6");
    }
    if !namespaces_or_skip(test) {
        return;
    }
    let namespace = Namespace::named(&format!("tapline-ipv6-{}", std::process::id())).unwrap();
    let script = "echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6; ip link set lo up; \
                  ip -6 address show lo | grep -q ::1 || exit 9; exec \"$0\" --exact \"$1\"";
    let mut program = namespace.command("sh");
    let output =
        program.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}", output.status);
}

#[test]
fn netflow_5_fits_packets_of_ipv6() {
    if UdpSocket::bind("[::1]:0").is_err() {
        return again_with_ipv6("export::netflow_5_fits_packets_of_ipv6");
    }
    let options = ExportOptions { version: Version::V5, ..ExportOptions::default() };
    let datagrams = datagrams_to("[::1]:0", &options, 1, &flows(6, 700));
    let longest = datagrams.iter().map(Vec::len).max().unwrap_or(0);
    assert_eq!(longest, 24 + 29 * 48, "30 records and the headers of IPv6 and UDP are 1512 octets");
}

#[test]
fn rates_that_cannot_be_told_are_refused() {
    let to = [ExportTarget::Udp("127.0.0.1:9".to_owned())];
    let exporter =
        |version| Exporter::open(&to, &ExportOptions { version, ..ExportOptions::default() }).unwrap();
    let error = exporter(Version::V5).set_sampling(Sampling::Packets(16_384)).unwrap_err().to_string();
    assert!(error.contains("16383") && error.contains("--version 9"), "{error}");
    assert!(exporter(Version::V5).set_sampling(Sampling::Packets(16_383)).is_ok());
    assert!(exporter(Version::V9).set_sampling(Sampling::Packets(1_000_000)).is_ok());
}

/// With so many records a message is sent, and with no more.
#[test]
fn messages_have_the_records_asked_for() {
    for (version, head) in [(Version::V9, 20), (Version::Ipfix, 16)] {
        let options = ExportOptions { version, message_records: 7, ..ExportOptions::default() };
        let (flows, mut reader) = (flows(4, 200), Reader::default());
        for datagram in datagrams(&options, 1, &flows) {
            let before = reader.records.len();
            reader.sets(&datagram[head..], version == Version::V9);
            assert!(reader.records.len() - before <= 7, "{version:?}");
        }
        assert_eq!(reader.sum((0, 2)), sums(&flows).0);
    }
    let options = ExportOptions { version: Version::V5, message_records: 7, ..ExportOptions::default() };
    let datagrams = datagrams(&options, 1, &flows(4, 200));
    assert_eq!(datagrams.iter().map(Vec::len).max(), Some(24 + 7 * 48));
}

/// Records that are not written count as lost, and the first error is reported.
#[test]
fn a_full_disk_loses_unwritten_records() {
    let mut exporter =
        Exporter::open(&["file:/dev/full".parse().unwrap()], &ExportOptions::default()).unwrap();
    let flows = flows(7, 2000);
    let now = Timestamp::from_nanos(START);
    let failed = exporter.export(&flows, now).unwrap_err().to_string();
    assert!(failed.contains("No space left"), "{failed}");
    exporter.finish(now).unwrap_err();
    let account = exporter.account();
    let packets = flows.iter().map(Flow::packets).sum::<u64>();
    assert_eq!((account.flows, account.packets.lost), (2000, packets));
    assert_eq!((account.packets.written, account.packets.buffered), (0, 0));
    assert!(account.messages > 1 && account.messages == account.messages_lost);
}

/// One collector's full disk takes nothing from the others.
#[test]
fn the_other_collectors_get_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.ipfix");
    let targets = ExportTarget::list(&format!("file:/dev/full,file:{}", path.display())).unwrap();
    let mut exporter = Exporter::open(&targets, &ExportOptions::default()).unwrap();
    let (flows, now) = (flows(7, 2000), Timestamp::from_nanos(START));
    assert!(exporter.export(&flows, now).is_err());
    assert!(exporter.finish(now).is_err());
    assert_eq!(exporter.account().octets, path.metadata().unwrap().len());
}

/// A file that was renamed is opened again, and begins with the templates.
#[test]
fn each_file_of_messages_has_templates() {
    let folder = tempfile::tempdir().unwrap();
    let [path, old] = ["flows.ipfix", "flows.ipfix.1"].map(|name| folder.path().join(name));
    let mut exporter =
        Exporter::open(&[ExportTarget::File(path.clone())], &ExportOptions::default()).unwrap();
    let (flows, now) = (flows(7, 100), Timestamp::from_nanos(START));
    exporter.export(&flows, now).unwrap();
    assert!(!exporter.reopen(now).unwrap(), "it is the same");
    exporter.export(&flows, now).unwrap();
    std::fs::rename(&path, &old).unwrap();
    assert!(exporter.reopen(now).unwrap());
    exporter.export(&flows, now).unwrap();
    exporter.finish(now).unwrap();
    let [first, second] = [&old, &path].map(|path| std::fs::read(path).unwrap());
    assert_eq!((&first[16..18], &second[16..18]), (&[0, 2][..], &[0, 2][..]), "templates first");
    assert_eq!(exporter.account().octets, (first.len() + second.len()) as u64);
    assert_eq!((exporter.account().packets.buffered, exporter.account().packets.lost), (0, 0));
}

/// A collector that is started again on the same port gets templates first, and the account reports the flows lost
/// meanwhile.
#[test]
fn a_collector_that_comes_back_gets_templates() {
    let (_ours, address) = reserved_port(Ipv4Addr::LOCALHOST);
    let listener = TcpListener::bind(address).unwrap();
    let mut exporter =
        Exporter::open(&[ExportTarget::Tcp(address.to_string())], &ExportOptions::default()).unwrap();
    let (flows, now) = (flows(8, 20), Timestamp::from_nanos(START));
    let packets = flows.iter().map(Flow::packets).sum::<u64>();
    let mut given = 0;
    let mut export = || {
        exporter.export(&flows, now).unwrap();
        exporter.flush(now).unwrap();
        given += packets;
        let account = exporter.account();
        assert_eq!(account.packets.written + account.packets.lost, given);
        account.messages_lost
    };
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(export(), 0);
    let mut header = [0; 18];
    stream.read_exact(&mut header).unwrap();
    assert_eq!(header[16..], [0, 2], "templates first");
    // A program that another test is about to start has copies of both: only this ends them at once.
    SockRef::from(&stream).shutdown(Shutdown::Both).unwrap();
    SockRef::from(&listener).shutdown(Shutdown::Both).unwrap();
    drop((stream, listener));
    assert_eq!(export(), 1, "what is sent to a closed connection is lost");
    let listener = TcpListener::bind(address).unwrap();
    let reader = thread::spawn(move || {
        let mut header = [0; 18];
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut header).unwrap();
        // The stream stays open: no message meets a closed one again.
        (header, stream)
    });
    while !reader.is_finished() {
        export();
        thread::sleep(Duration::from_millis(20));
    }
    let (header, _stream) = reader.join().unwrap();
    assert_eq!(header[..2], [0, 10], "a message from its start");
    assert_eq!(header[16..], [0, 2], "templates again");
    let name = format!("tcp://{address}");
    let account = exporter.account();
    assert_eq!(account.losses, [(name.clone(), account.messages_lost, account.packets.lost)]);
    let news = exporter.take_events();
    assert_eq!(news.len(), 2, "{news:?}");
    assert!(news[0].starts_with(&format!("{name} is gone (")) && news[1] == format!("{name} is back"));
    assert!(exporter.take_events().is_empty(), "each once");
}

/// A closed UDP port is only reported, as datagrams are not acknowledged.
#[test]
fn a_closed_port_is_reported_once() {
    // A port of ours, so that no other program opens it: the socket takes datagrams of another peer only.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect("127.0.0.1:9").unwrap();
    let mut exporter =
        Exporter::open(&[ExportTarget::Udp(address.to_string())], &ExportOptions::default()).unwrap();
    let (flows, now) = (flows(9, 2), Timestamp::from_nanos(START));
    let mut news = Vec::new();
    // The answer of the host may take a moment; twenty datagrams more, and it is not told again.
    let mut rounds_after = 0;
    for _ in 0..10_000 {
        exporter.export(&flows, now).unwrap();
        exporter.flush(now).unwrap();
        news.extend(exporter.take_events());
        rounds_after += usize::from(!news.is_empty());
        if rounds_after > 20 {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(news.len(), 1, "{news:?}");
    assert!(news[0].contains("no process listens there"));
    assert_eq!((exporter.account().packets.lost, exporter.account().losses.len()), (0, 0));
}

/// Collectors distinguish exporters by their addresses: messages come from the chosen one, and say so if the template
/// does.
#[test]
fn messages_come_from_the_exporters_address() {
    let exporter = IpAddr::from([127, 0, 0, 2]);
    let options = ExportOptions {
        exporter: Some(exporter),
        template: "octetDeltaCount,exporterIPv4Address".to_owned(),
        ..ExportOptions::default()
    };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let targets = [
        ExportTarget::Udp(socket.local_addr().unwrap().to_string()),
        ExportTarget::Tcp(listener.local_addr().unwrap().to_string()),
    ];
    let mut sender = Exporter::open(&targets, &options).unwrap();
    assert_eq!(listener.accept().unwrap().1.ip(), exporter);
    sender.export(&flows(9, 3), Timestamp::from_nanos(START)).unwrap();
    sender.flush(Timestamp::from_nanos(START)).unwrap();
    let mut buffer = [0; 2000];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(from.ip(), exporter);
    let mut reader = Reader::default();
    // Behind the header of 16 octets.
    reader.sets(&buffer[16..len], false);
    assert_eq!(reader.records.len() as u64, sender.account().records);
    for record in &reader.records {
        assert_eq!(record[&(0, 130)], [127, 0, 0, 2]);
    }

    let refused = |options: ExportOptions, to: &str| {
        let open = Exporter::open(&[ExportTarget::Udp(to.to_owned())], &options);
        open.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(refused(options.clone(), "[::1]:9").contains("no address that can be reached from 127.0.0.2"));
    let none = ExportOptions { exporter: None, ..options.clone() };
    assert!(refused(none, "127.0.0.1:9").contains("--exporter ADDRESS"));
    let other = ExportOptions { exporter: Some(Ipv6Addr::LOCALHOST.into()), ..options };
    assert!(refused(other, "[::1]:9").contains("exporterIPv4Address"));
}
