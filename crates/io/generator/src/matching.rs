//! Flows that a filter accepts, and flows that it does not.
//!
//! ```text
//! filter --wishes--> alternatives: protocol, addresses, ports that it names
//!                       |  in the place of the recipe's own
//!                       v
//!                    candidates --every kind of packet of the flow, judged by the compiled filter--> accepted: one more
//! ```
//!
//! Protocols, addresses and ports that the filter names are met by construction. Other conditions are met by trial:
//! candidates one after the other, up to a bound. The compiled filter decides in any case, here and again for each
//! packet that is made.

mod wishes;

use std::collections::HashSet;

use tapline_filter::{Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::headers::IpVersion;
use tapline_packet::{LinkType, Meta, Packet as Lent};

use crate::connection::{Connection, Segment};
use crate::error::Error;
use crate::flow::{Flow, FlowRanges};
use crate::payload::Pool;
use crate::random::Random;
use crate::recipe::{Recipe, Sizes, Transport};
use crate::shape::Shape;
use crate::share::Share;
use crate::write::Packet;
use wishes::Wish;

/// Candidates that are tried for each flow that is wanted, and at least.
const TRIES: u64 = 64;
const TRIES_MIN: u64 = 100_000;

/// Judges packets.
pub(crate) struct FrameFilter {
    program: CompiledFilter,
    pub(crate) text: String,
}

impl FrameFilter {
    pub(crate) fn new(text: &str) -> Result<FrameFilter, Error> {
        let program = compile(text, &Options::new(LinkType::ETHERNET));
        let program = program.map_err(Error::Filter)?;
        Ok(FrameFilter { program, text: text.to_owned() })
    }

    /// Whether the filter accepts a frame.
    #[inline]
    pub(crate) fn accepts(&self, frame: &[u8]) -> bool {
        let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
        self.program.run(Lent { data: frame, meta: &meta }) != 0
    }
}

/// The packets of a flow that the filter accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlowMatch {
    All,
    None,
    Some,
}

/// Finds flows.
pub(crate) struct Search<'a> {
    pub(crate) recipe: &'a Recipe,
    pub(crate) shapes: &'a [Shape],
    pub(crate) pool: &'a Pool,
    pub(crate) judge: &'a FrameFilter,
    pub(crate) frame: Vec<u8>,
    pub(crate) seen: HashSet<([u8; 32], u32, u16)>,
}

impl Search<'_> {
    /// Flows of which every packet is accepted, then flows of which none is; and how many are of the first kind.
    pub(crate) fn flows(mut self, share: Share, count: u32) -> Result<(Vec<Flow>, u32), Error> {
        let wanted = (u64::from(count) * u64::from(share.over)).div_ceil(u64::from(share.under)) as u32;
        let wanted = if share.over == share.under { count } else { wanted.min(count.saturating_sub(1)) };
        let mut flows = Vec::with_capacity(count as usize);
        let wishes = wishes::of(&self.judge.text);
        for wish in &wishes.alternatives {
            for index in self.kinds(wish) {
                let spaces = self.spaces(index, wish);
                self.collect(&spaces, index, FlowMatch::All, wanted as usize, &mut flows);
            }
        }
        if flows.len() < wanted as usize {
            let what = format!("{} of the {wanted} flows that are to match were found", flows.len());
            let mend = "the filter must name what the recipe allows (udp, ip6, vlan=, size=); of TCP both ways must match, or oneway leaves the server's out";
            return Err(Error::unmet("match", what, mend));
        }
        for wish in [Wish::default()].iter().chain(&wishes.parts) {
            for index in self.usual_kinds() {
                let spaces = self.spaces(index, wish);
                self.collect(&spaces, index, FlowMatch::None, count as usize, &mut flows);
            }
        }
        if flows.len() < count as usize {
            let (found, of) = (flows.len() - wanted as usize, count - wanted);
            let what = format!("{found} of the {of} flows that are not to match were found");
            let mend = "let src, sport, dst or dport range over what the filter does not accept";
            return Err(Error::unmet("match", what, mend));
        }
        Ok((flows, wanted))
    }

    /// The shapes that an alternative allows.
    fn kinds(&self, wish: &Wish) -> Vec<usize> {
        let fits = |shape: &Shape| {
            wish.transport.is_none_or(|transport| transport == shape.transport)
                && wish.version.is_none_or(|version| version == shape.version)
        };
        (0..self.shapes.len()).filter(|index| fits(&self.shapes[*index])).collect()
    }

    /// The shapes of a recipe without a filter.
    fn usual_kinds(&self) -> Vec<usize> {
        let is_usual = |shape: &Shape| {
            (!self.recipe.transports.is_empty() || shape.transport == Transport::Udp)
                && (!self.recipe.versions.is_empty() || shape.version == IpVersion::V4)
        };
        (0..self.shapes.len()).filter(|index| is_usual(&self.shapes[*index])).collect()
    }

    fn spaces(&self, index: usize, wish: &Wish) -> FlowRanges {
        let shape = &self.shapes[index];
        let mut spaces = FlowRanges::new(self.recipe, shape.transport, shape.version);
        wish.apply(&mut spaces);
        spaces
    }

    fn collect(
        &mut self,
        spaces: &FlowRanges,
        index: usize,
        wanted: FlowMatch,
        count: usize,
        flows: &mut Vec<Flow>,
    ) {
        let missing = count.saturating_sub(flows.len()) as u64;
        let tries = (missing * TRIES).max(TRIES_MIN).min(spaces.len());
        for place in 0..tries {
            if flows.len() >= count {
                return;
            }
            let flow = spaces.flow(place, self.recipe.walk, self.recipe.seed, index as u16);
            if self.verdict(&flow) == wanted && self.seen.insert(key(&flow)) {
                flows.push(flow);
            }
        }
    }

    /// Judges each kind of packet that the flow will have.
    fn verdict(&mut self, flow: &Flow) -> FlowMatch {
        let shape = &self.shapes[flow.shape as usize];
        let mut verdict = None;
        for size in sizes(&self.recipe.sizes) {
            let Some(payload) = (size as usize).checked_sub(shape.len()) else { return FlowMatch::Some };
            let (mut connection, mut random) = (Connection::default(), Random::new(0, 0));
            let steps = if shape.transport == Transport::Tcp { 10 } else { 1 };
            for _ in 0..steps {
                let segment = match shape.transport {
                    Transport::Tcp => connection.next(2, self.recipe.is_one_way, &mut random, || payload),
                    _ => Segment { payload, ..Segment::default() },
                };
                let packet = Packet { shape, flow, segment, echo: 1, id: 1, start: 0, mark: None };
                let len = packet.len();
                packet.write(self.pool, &mut self.frame[..len]);
                let is_accepted = self.judge.accepts(&self.frame[..len]);
                if *verdict.get_or_insert(is_accepted) != is_accepted {
                    return FlowMatch::Some;
                }
            }
        }
        if verdict == Some(true) { FlowMatch::All } else { FlowMatch::None }
    }
}

fn key(flow: &Flow) -> ([u8; 32], u32, u16) {
    let mut addresses = [0; 32];
    addresses[..16].copy_from_slice(&flow.src);
    addresses[16..].copy_from_slice(&flow.dst);
    (addresses, u32::from(flow.src_port) << 16 | u32::from(flow.dst_port), flow.shape)
}

/// Sizes that represent all sizes.
fn sizes(sizes: &Sizes) -> Vec<u32> {
    match sizes {
        Sizes::Weighted(list) => list.iter().map(|(size, _)| *size).collect(),
        other => {
            let (min, max) = other.bounds();
            if min == max { vec![min] } else { vec![min, max] }
        }
    }
}
