//! Filters and the packets that they are asked about.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::anyhow;
use tapline_filter::{Options, compile};
use tapline_filterset::{Filter, FilterFactory, FilterSet, FiveTuple, FiveTuples, MatchPolicy, interpreted};
use tapline_ir::CompiledFilter;
use tapline_testkit::frame_batches::FrameBatches;
use tapline_testkit::frames::{Ethernet, Host, IpPair, Tcp, Udp, flags};
use tapline_testkit::random::Random;
use tapline_testkit::traffic::Traffic;

use crate::readers;

/// A set, its filters' own programs, and packets.
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) count: usize,
    pub(super) set: FilterSet,
    /// By the filter's index in the set.
    pub(super) programs: Vec<(u32, CompiledFilter)>,
    pub(super) pool: FrameBatches,
    /// Matches of all packets, once they are known.
    pub(super) matches: usize,
}

impl Workload {
    /// One flow for each filter; three packets of four belong to one of them, the rest to flows without a filter.
    pub(super) fn five_tuples(count: usize, packets: usize) -> anyhow::Result<Workload> {
        let examples = FiveTuples::new(&Options::default()).map_err(|error| anyhow!(error))?;
        let mut random = Random::new(count as u64);
        let mut workload = Workload::empty(format!("{count} five-tuples"), count);
        for number in 0..count {
            let flow = flow(number as u32);
            let index = workload.set.insert(examples.filter(&flow)?, 0).index();
            workload.programs.push((index, program(&flow.to_string())?));
        }
        let frame = |_| {
            let wanted = random.one_of(3, 4);
            let number = random.below(count as u64) as u32;
            frame(&flow(if wanted { number } else { number + 50_000_000 }), &mut random)
        };
        workload.pool = FrameBatches::new(&(0..packets).map(frame).collect::<Vec<_>>());
        Ok(workload)
    }

    /// Filters as people type them, about the hosts and services of a small network.
    pub(super) fn mixed(count: usize, packets: usize) -> anyhow::Result<Workload> {
        let workload = Workload::empty(format!("{count} mixed"), count);
        workload.filled(packets, mixed_text, &interpreted)
    }

    /// Filters of a daemon's readers: a few kinds, and of each several that differ in a number or a range.
    pub(super) fn readers(count: usize, packets: usize) -> anyhow::Result<Workload> {
        let mut workload = Workload::empty(format!("{count} readers"), count);
        for reader in 0..count {
            workload.add(&readers::filter(reader, readers::Want::Few), &interpreted)?;
        }
        workload.see_a_small_network(packets);
        Ok(workload)
    }

    /// Filters that hash tables do not settle: each asks its own program, interpreted and, where there is any, as
    /// native code.
    pub(super) fn programs(count: usize, packets: usize) -> anyhow::Result<Vec<Workload>> {
        let empty = |kind| Workload::empty(format!("{count} programs, {kind}"), count);
        let interpreted = empty("interpreted").filled(packets, computed_text, &interpreted)?;
        let residuals = tapline_jit::NativeResiduals::new(tapline_jit::RESIDUALS_MAX);
        let backend: FilterFactory<'_> = &|filter| residuals.ready(filter);
        let native = empty("native").filled(packets, computed_text, backend)?;
        anyhow::ensure!(residuals.interpreted() == 0, "some programs did not become native code");
        Ok(vec![interpreted, native])
    }

    /// With as many filters as were announced, and the traffic of a small network.
    fn filled(
        mut self,
        packets: usize,
        next_text: fn(&mut Random) -> String,
        backend: FilterFactory<'_>,
    ) -> anyhow::Result<Workload> {
        let mut random = Random::new(7);
        let workload = &mut self;
        while workload.programs.len() < workload.count {
            workload.add(&next_text(&mut random), backend)?;
        }
        workload.see_a_small_network(packets);
        Ok(self)
    }

    fn add(&mut self, text: &str, backend: FilterFactory<'_>) -> anyhow::Result<()> {
        let filter = Filter::compile_with(text, &Options::default(), backend)
            .map_err(|error| anyhow!(error.render(text)))?;
        let index = self.set.insert(filter, 0).index();
        self.programs.push((index, program(text)?));
        Ok(())
    }

    fn see_a_small_network(&mut self, packets: usize) {
        let frames: Vec<Vec<u8>> = Traffic::new(1).take(packets).map(|(_, frame)| frame).collect();
        self.pool = FrameBatches::new(&frames);
    }

    /// `port 1 or port 2 ... or port n` alone, on traffic to all ports.
    pub(super) fn ports(count: usize, packets: usize) -> anyhow::Result<Workload> {
        let mut random = Random::new(9);
        let mut workload = Workload::empty(format!("port 1 or ... {count}"), count);
        let text = (1..=count).map(|port| format!("port {port}")).collect::<Vec<_>>().join(" or ");
        let filter = Filter::compile(&text, &Options::default()).map_err(|error| anyhow!(error))?;
        let index = workload.set.insert(filter, 0).index();
        workload.programs.push((index, program(&text)?));
        let frame = |_| {
            let other = FiveTuple { dst_port: random.between(1..=2 * count as u64) as u16, ..flow(3) };
            frame(&FiveTuple { src_port: 50_000, ..other }, &mut random)
        };
        workload.pool = FrameBatches::new(&(0..packets).map(frame).collect::<Vec<_>>());
        Ok(workload)
    }

    fn empty(name: String, count: usize) -> Workload {
        let set = FilterSet::new(MatchPolicy::All);
        Workload { name, count, set, programs: Vec::new(), pool: FrameBatches::new(&[]), matches: 0 }
    }
}

fn program(text: &str) -> anyhow::Result<CompiledFilter> {
    compile(text, &Options::default()).map_err(|error| anyhow!(error.render(text)))
}

/// The flow of a number: all of them differ.
pub(super) fn flow(number: u32) -> FiveTuple {
    // An odd factor keeps numbers different, and spreads them as addresses are spread.
    let spread = number.wrapping_mul(0x9e37_79b1);
    FiveTuple {
        src: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 | spread >> 12)),
        dst: IpAddr::V4(Ipv4Addr::from(0xc000_0200 | (number % 7))),
        protocol: if number.is_multiple_of(3) { 17 } else { 6 },
        src_port: 1024 + (spread & 0xfff) as u16,
        dst_port: [80, 443, 53, 22][number as usize % 4],
    }
}

/// A frame of a flow, 64 to 1,000 bytes long.
pub(super) fn frame(flow: &FiveTuple, random: &mut Random) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (flow.src, flow.dst) else { return Vec::new() };
    let link = Ethernet::between(&Host::number(1), &Host::number(2));
    let pair = IpPair::V4(src, dst);
    let len = random.heavy_tailed(22, 900) as usize;
    let payload = random.bytes(len);
    let packet = if flow.protocol == 6 {
        let header = Tcp { src: flow.src_port, dst: flow.dst_port, flags: flags::ACK, ..Tcp::default() };
        header.packet(pair, &payload)
    } else {
        Udp { src: flow.src_port, dst: flow.dst_port }.packet(pair, &payload)
    };
    link.ip(&packet)
}

/// Seldom broad, mostly about one host, one service or one flow.
fn mixed_text(random: &mut Random) -> String {
    let host = |random: &mut Random| Host::number(random.between(0x0101..=0x01fe) as u16);
    let one = host(random);
    let (v4, v6) = (one.v4, one.v6);
    let port = *random.pick(&[22_u16, 25, 53, 67, 80, 123, 143, 443, 993, 5060, 8080, 8443]);
    let high = random.between(1024..=65_000);
    match random.below(20) {
        0..=4 => format!("host {v4} and tcp port {port}"),
        5 | 6 => format!("src host {v4}"),
        7 => format!("dst host {v4} and udp"),
        8 => format!("ip6 host {v6}"),
        9 => format!("ip6 and host {v6} and port {port}"),
        10 => format!("net {}/{}", Ipv4Addr::from(u32::from(v4) & !0xff), 24),
        11 => format!("tcp src port {high} and host {v4}"),
        12 => format!("ether host {}", mac(one.mac)),
        13 => format!("host {v4} and portrange {high}-{}", (high + 100).min(65_535)),
        14 => format!("host {v4} and tcp[13] & 2 != 0"),
        15 => format!("(host {v4} or host {}) and not port {port}", host(random).v4),
        16 => format!("arp host {v4}"),
        17 => format!("udp port {port} and greater {}", 100 + high % 1000),
        18 => format!("host {v4} and icmp"),
        _ => super::workload::flow(high as u32).to_string(),
    }
}

/// A filter outside all tables: arithmetic on the packet's bytes.
fn computed_text(random: &mut Random) -> String {
    let number = random.between(1..=200);
    match random.below(3) {
        0 => format!("ip[8] + ip[9] = {number}"),
        1 => format!("tcp and ip[2:2] - ((ip[0] & 15) << 2) > {}", 20 + number),
        _ => format!("udp[4:2] - 8 = udp[6] & {number}"),
    }
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}
