//! Records for an exporter that come without flows in between: they are those that the flows become, octet by octet.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;

use tapline_collect::{Collector, CollectorSettings};
use tapline_flow::export::{
    ExportAccount, ExportOptions, ExportTarget, Exporter, FlowSink as _, RecordBatch, RecordLayout,
};
use tapline_packet::Timestamp;

use super::messages::{ipfix, netflow5, netflow9, sflow};
use super::{EXPORTER, FIELDS, NOW, from, record};

/// The elements of `collect-flows`, and others that are copied, and some that are not.
const TEMPLATES: [&str; 4] = [
    "default,samplingInterval,exporterIPv4Address,exporterIPv6Address,bgpSourceAsNumber,bgpDestinationAsNumber,\
     ipNextHopIPv4Address",
    "sourceIPv4PrefixLength,destinationIPv4PrefixLength,observationDomainId,minimumTTL,maximumTTL,dot1qVlanId,\
     flowEndReason,sourceIPv4Address,packetDeltaCount,packetTotalCount,octetTotalCount",
    "vlanId,dot1qVlanId,octetDeltaCount",
    "default,flowStartSeconds,natEvent",
];

fn options(template: &str) -> ExportOptions {
    ExportOptions { template: template.to_owned(), is_collected: true, ..ExportOptions::default() }
}

fn layout(template: &str) -> Arc<RecordLayout> {
    let layout = RecordLayout::of(&options(template)).expect("the elements exist");
    Arc::new(layout.expect("their lengths are fixed"))
}

/// Reads datagrams in both ways, and checks that each has the same records and that all have the same accounts. Returns
/// the number of flows.
fn check(layout: &Arc<RecordLayout>, scales: bool, datagrams: &[(SocketAddr, Vec<u8>)]) -> usize {
    let collector = || Collector::new(CollectorSettings { scales, ..CollectorSettings::default() }, None);
    let (mut of_flows, mut of_records, now) = (collector(), collector(), Timestamp::from_parts(NOW, 0));
    let mut count = 0;
    for (from, datagram) in datagrams {
        let (mut flows, mut expected, mut records) =
            (Vec::new(), RecordBatch::default(), RecordBatch::default());
        let read = of_flows.read(*from, now, datagram, &mut flows);
        flows.iter().for_each(|flow| expected.add_flow(layout, flow));
        assert_eq!(of_records.read_records(*from, now, datagram, layout, &mut records), read);
        assert_eq!(records, expected, "{datagram:?}");
        assert_eq!(records.flows(), flows.len() as u64);
        count += flows.len();
    }
    assert_eq!(of_records.sources(), of_flows.sources());
    assert_eq!(of_records.is_beyond(), of_flows.is_beyond());
    count
}

/// Numbers without a pattern, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// Elements that flows have, of common lengths and of others.
    fn field(&mut self) -> (u16, u16) {
        const COMMON: [(u16, u16); 42] = [
            (1, 8),
            (1, 4),
            (2, 8),
            (2, 4),
            (4, 1),
            (5, 1),
            (6, 1),
            (6, 2),
            (7, 2),
            (8, 4),
            (8, 4),
            (9, 1),
            (10, 2),
            (10, 4),
            (11, 2),
            (12, 4),
            (12, 4),
            (13, 1),
            (14, 4),
            (15, 4),
            (16, 2),
            (16, 4),
            (17, 4),
            (21, 4),
            (22, 4),
            (27, 16),
            (28, 16),
            (29, 1),
            (32, 2),
            (34, 4),
            (48, 1),
            (52, 1),
            (53, 1),
            (58, 2),
            (61, 1),
            (62, 16),
            (130, 4),
            (131, 16),
            (136, 1),
            (152, 8),
            (153, 8),
            (210, 3),
        ];
        match self.below(30) {
            0 => (self.below(400) as u16, 1 + self.below(8) as u16),
            _ => COMMON[self.below(COMMON.len())],
        }
    }

    /// A value, often 0, or a time near that of the messages.
    fn octets(&mut self, (id, len): (u16, u16)) -> Vec<u8> {
        let near = match id {
            152 | 153 if self.below(8) > 0 => Some(NOW as u64 * 1000 - self.below(100_000) as u64),
            21 | 22 if self.below(8) > 0 => Some(90_000 + self.below(20_000) as u64),
            4 => Some([1, 6, 17, 58, 0][self.below(5)]),
            1 | 2 => Some(self.below(3) as u64 * self.below(5_000) as u64),
            10 | 48 => Some(self.below(3) as u64),
            _ if self.below(3) == 0 => Some(0),
            _ => None,
        };
        match near {
            Some(number) => [[0; 8], number.to_be_bytes()].concat()[16 - usize::from(len)..].to_vec(),
            None => (0..len).map(|_| self.below(256) as u8).collect(),
        }
    }
}

#[test]
fn random_templates_have_the_records_of_flows() {
    let mut numbers = Numbers(7);
    for template in TEMPLATES {
        let layout = layout(template);
        for scales in [false, true] {
            let mut datagrams = Vec::new();
            for sequence in 0..1500 {
                let fields: Vec<_> = (0..3 + numbers.below(12)).map(|_| numbers.field()).collect();
                let record =
                    |numbers: &mut Numbers| fields.iter().flat_map(|field| numbers.octets(*field)).collect();
                let records: Vec<Vec<u8>> = (0..3).map(|_| record(&mut numbers)).collect();
                let id = 256 + numbers.below(50) as u16;
                let message =
                    if numbers.below(2) == 0 { ipfix(sequence) } else { netflow9(sequence, 100_000) };
                let message = message.of_domain(numbers.below(3) as u32);
                // Before their template now and then, as those of the template before.
                let message = match numbers.below(9) {
                    0 => message.records(id, &records).template(id, &fields),
                    _ => message.template(id, &fields).records(id, &records),
                };
                datagrams.push((from(EXPORTER), message.octets()));
            }
            // Intervals of a sampler, an interface and the source, which the records behind them have.
            let options = |sequence, scope: (u16, u16), value: &[u8]| {
                let message =
                    netflow9(sequence, 100_000).of_domain(1).options_template(900, &[scope], &[(34, 4)]);
                (from(EXPORTER), message.records(900, &[[value, &[0, 0, 0, 50]].concat()]).octets())
            };
            datagrams.insert(900, options(5000, (2, 4), &[0, 0, 0, 2]));
            datagrams.insert(600, options(5001, (1, 4), &[0, 0, 0, 1]));
            let flows = check(&layout, scales, &datagrams);
            assert!(flows > 1000, "{flows}");
        }
    }
}

/// Fixed records, samples, options, sets that wait, both directions, and damaged messages.
#[test]
fn all_protocols_have_the_records_of_flows() {
    let biflow = [(0, 8, 4), (0, 12, 4), (0, 2, 4), (29305, 2, 4), (29305, 1, 4)];
    let both_ways = [10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 1, 0].to_vec();
    let v6 = [(27, 16), (28, 16), (4, 1), (2, 4)];
    let of_v6 = [&[0x20; 32][..], &[58, 0, 0, 0, 9]].concat();
    let messages = [
        ipfix(0).records(256, &[record(1), record(2)]).octets(),
        ipfix(2).template(256, FIELDS).records(256, &[record(3), record(0), record(u32::MAX)]).octets(),
        ipfix(5)
            .enterprise_template(300, &biflow)
            .records(300, &[both_ways])
            .records(256, &[record(4)])
            .octets(),
        ipfix(7).template(301, &v6).records(301, &[of_v6]).records(256, &[record(5)]).octets(),
        netflow9(0, 1000).options_template(258, &[(1, 4)], &[(34, 4), (35, 1)]).octets(),
        netflow9(1, 1000).records(258, &[vec![0, 0, 0, 1, 0, 0, 0, 100, 2]]).octets(),
        netflow9(2, 1000).template(256, FIELDS).records(256, &[record(7)]).octets(),
        netflow5(1, 1, &[(2, 3), (4, 5)]),
        sflow(1, 3),
    ];
    let mut datagrams: Vec<_> = messages.iter().map(|octets| (from(EXPORTER), octets.clone())).collect();
    for octets in messages {
        let damaged = (0..octets.len()).map(|at| {
            let mut damaged = octets.clone();
            damaged[at] ^= 0x41;
            damaged.truncate(octets.len() - at % 7);
            (from(EXPORTER), damaged)
        });
        datagrams.extend(damaged);
    }
    for template in TEMPLATES {
        assert!(check(&layout(template), false, &datagrams) > 100);
    }
}

/// The account without the name of the file.
fn account(exporter: &Exporter) -> ExportAccount {
    let mut account = exporter.account();
    account.packets.name.clear();
    account
}

/// Files of both ways are equal, whatever the length of their messages, and so are their accounts.
#[test]
fn files_of_records_are_those_of_flows() {
    let folder = tempfile::tempdir().expect("there is room");
    let [of_flows, of_records] = ["flows", "records"].map(|name| folder.path().join(name));
    let v6 = [(27, 16), (28, 16), (4, 1), (2, 4)];
    let of_v6 = |last: u8| [&[0x20; 31][..], &[last, 6, 0, 0, 0, 9]].concat();
    for message_records in [0, 7] {
        let options = ExportOptions { message_records, ..options(TEMPLATES[0]) };
        let open = |path: &std::path::Path| {
            Exporter::open(&[ExportTarget::File(path.to_owned())], &options).expect("it can be made")
        };
        let (mut by_flows, mut by_records) = (open(&of_flows), open(&of_records));
        let layout = by_records.record_layout().expect("all lengths are fixed");
        let (mut first, mut second) =
            [(); 2].map(|()| Collector::new(CollectorSettings::default(), None)).into();
        let (mut flows, mut records) = (Vec::new(), RecordBatch::default());
        for number in 0..3000 {
            let now = Timestamp::from_parts(NOW + i64::from(number) / 100, 0);
            let all: Vec<Vec<u8>> = (0..number % 40).map(record).collect();
            let message = ipfix(0).template(256, FIELDS).template(257, &v6).records(256, &all);
            let octets = message.records(257, &[of_v6(number as u8)]).octets();
            first.read(from(EXPORTER), now, &octets, &mut flows).expect("it is whole");
            second.read_records(from(EXPORTER), now, &octets, &layout, &mut records).expect("it is whole");
            if number % 9 == 0 {
                by_flows.export(&flows, now).expect("there is room");
                by_records.export_records(&records, now).expect("there is room");
                assert_eq!(account(&by_records), account(&by_flows));
                first.recycle(&mut flows);
                records.clear();
            }
        }
        let end = Timestamp::from_parts(NOW + 60, 0);
        by_flows.finish(end).expect("there is room");
        by_records.finish(end).expect("there is room");
        assert_eq!(account(&by_records), account(&by_flows));
        assert_eq!(by_records.account().packets.buffered, 0);
        let [expected, octets] = [&of_flows, &of_records].map(|path| fs::read(path).expect("it is there"));
        assert!(octets.len() > 4_000_000 && octets == expected, "{} {}", octets.len(), expected.len());
    }
}
