//! The first bytes of each flow, by class of traffic. Later packets of a flow are left out, as the user asked.
//!
//! ```text
//! packet --> flow known? --> bytes so far < those of its class: recorded, else cut
//!                no --> its class: the first whose filter accepts this packet
//! ```
//!
//! The table of flows has a fixed capacity. When it is full, the flow that was quiet longest is removed; its next
//! packet begins a new flow. So more may be recorded than the user asked for, never less.

use std::hash::{BuildHasher, RandomState};

use tapline_filter::{Options, compile};
use tapline_ir::CompiledFilter;
use tapline_packet::Packet;
use tapline_packet::headers::Headers;

use crate::error::Error;

/// Flows of a bucket, and buckets: 262,144 flows in all, 8 MiB.
const WAYS: usize = 4;
const BUCKETS: usize = 1 << 16;
/// A flow that was quiet for so long has ended, in nanoseconds.
const QUIET_NS: i64 = 300_000_000_000;

/// The bytes of a flow that is refused as a whole.
const REFUSED: u64 = u64::MAX;

/// Bytes of each flow to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cutoff {
    /// The flows that are meant, by their first packet; `None` for all.
    pub filter: Option<String>,
    /// Bytes on the wire: the packet that reaches them is the last one.
    pub bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    /// Number of the flow; 0 for a free entry.
    print: u64,
    bytes: u64,
    /// Bytes that it may have.
    limit: u64,
    /// When its last packet came, nanoseconds since 1970.
    last: i64,
}

/// The fate of a packet by its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlowVerdict {
    Recorded,
    /// The packet is beyond the cut-off of its flow.
    Cut,
    /// The flow began under overload.
    Refused,
}

/// Classes of traffic, and the flows that are known.
pub(super) struct Cutter {
    classes: Vec<(Option<CompiledFilter>, u64)>,
    flows: Vec<[Flow; WAYS]>,
    seed: u64,
}

impl Cutter {
    /// `None` where no flow is cut or refused; `refuses` says that flows may be refused.
    ///
    /// # Errors
    /// [`Error::Setting`] for a filter that is none.
    pub(super) fn new(cutoffs: &[Cutoff], refuses: bool) -> Result<Option<Cutter>, Error> {
        let class = |cutoff: &Cutoff| {
            let program = cutoff.filter.as_ref().map(|filter| {
                compile(filter, &Options::default())
                    .map_err(|error| Error::Setting(format!("--cut {filter:?}: {error}")))
            });
            Ok((program.transpose()?, cutoff.bytes))
        };
        let classes: Vec<_> = cutoffs.iter().map(class).collect::<Result<_, Error>>()?;
        let is_any = refuses || !classes.is_empty();
        let flows = if is_any { vec![Default::default(); BUCKETS] } else { Vec::new() };
        Ok(is_any.then(|| Cutter { classes, flows, seed: RandomState::new().hash_one(0) }))
    }

    /// Whether a packet is to be recorded; `refuses_new` has a flow that begins with it refused. Packets without ports,
    /// fragments too, always are.
    #[inline]
    pub(super) fn verdict(
        &mut self,
        packet: Packet<'_>,
        headers: &Headers,
        refuses_new: bool,
    ) -> FlowVerdict {
        if headers.fragment().is_some() || headers.ports(packet.data).is_none() {
            return FlowVerdict::Recorded;
        }
        let print = headers.flow_hash(packet.data, self.seed).max(1);
        let now = packet.meta.timestamp.as_nanos();
        let bucket = &mut self.flows[(print >> 48) as usize % BUCKETS];
        let is_same = |flow: &Flow| flow.print == print && now.saturating_sub(flow.last) <= QUIET_NS;
        let at = bucket.iter().position(is_same).unwrap_or_else(|| {
            let classes = &self.classes;
            let accepts = |class: &&(Option<CompiledFilter>, u64)| {
                class.0.as_ref().is_none_or(|program| program.run(packet) != 0)
            };
            let limit = classes.iter().find(accepts).map_or(u64::MAX, |class| class.1);
            // A flow that ended gives its place to the next one of its number.
            let same = bucket.iter().position(|flow| flow.print == print);
            let at = same.unwrap_or_else(|| oldest(bucket));
            bucket[at] = Flow { print, bytes: if refuses_new { REFUSED } else { 0 }, limit, last: now };
            at
        });
        let flow = &mut bucket[at];
        flow.last = now;
        if flow.bytes == REFUSED {
            return FlowVerdict::Refused;
        }
        let is_recorded = flow.bytes < flow.limit;
        flow.bytes = flow.bytes.saturating_add(packet.meta.wire_len.into()).min(REFUSED - 1);
        if is_recorded { FlowVerdict::Recorded } else { FlowVerdict::Cut }
    }
}

/// A place without a flow, or of the one that was quiet longest.
fn oldest(bucket: &[Flow; WAYS]) -> usize {
    let age = |at: &usize| if bucket[*at].print == 0 { i64::MIN } else { bucket[*at].last };
    (0..WAYS).min_by_key(age).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use tapline_packet::{LinkType, Meta, Timestamp};

    use super::*;

    /// A UDP packet of 100 bytes, from a port to another; each host has one port.
    fn packet(from: u16, to: u16) -> Vec<u8> {
        let mut data = vec![0; 100];
        data[12..14].copy_from_slice(&[8, 0]);
        data[14] = 0x45;
        data[16..18].copy_from_slice(&86_u16.to_be_bytes());
        data[22..24].copy_from_slice(&[64, 17]);
        let ([a, b], [c, d]) = (from.to_be_bytes(), to.to_be_bytes());
        data[26..34].copy_from_slice(&[10, 0, a, b, 10, 0, c, d]);
        data[34..36].copy_from_slice(&from.to_be_bytes());
        data[36..38].copy_from_slice(&to.to_be_bytes());
        data[38..40].copy_from_slice(&66_u16.to_be_bytes());
        data
    }

    fn cutter(cutoffs: &[(Option<&str>, u64)]) -> Cutter {
        let cutoff = |(filter, bytes): &(Option<&str>, u64)| Cutoff {
            filter: filter.map(str::to_owned),
            bytes: *bytes,
        };
        let cutoffs: Vec<Cutoff> = cutoffs.iter().map(cutoff).collect();
        Cutter::new(&cutoffs, false).unwrap().unwrap()
    }

    fn keeps(cutter: &mut Cutter, data: &[u8], second: i64) -> bool {
        verdict(cutter, data, second, false) == FlowVerdict::Recorded
    }

    fn verdict(cutter: &mut Cutter, data: &[u8], second: i64, refuses_new: bool) -> FlowVerdict {
        let timestamp = Timestamp::from_nanos(second * 1_000_000_000);
        let meta = Meta { wire_len: data.len() as u32, timestamp, ..Meta::default() };
        let packet = Packet { data, meta: &meta };
        cutter.verdict(packet, &Headers::parse(LinkType::ETHERNET, packet), refuses_new)
    }

    #[test]
    fn each_flow_has_the_bytes_of_its_class() {
        let mut cutter = cutter(&[(Some("udp port 53"), 250), (None, 500)]);
        for (port, kept) in [(53, 3), (80, 5)] {
            for client in 1000..1010 {
                // Both directions are one flow.
                let sides = [packet(client, port), packet(port, client)];
                let count = (0..20).filter(|at| keeps(&mut cutter, &sides[at % 2], 1)).count();
                assert_eq!(count, kept, "{port}");
            }
        }
        // Without ports there is no flow.
        let mut arp = packet(1, 1);
        arp[12..14].copy_from_slice(&[8, 6]);
        assert!((0..20).all(|_| keeps(&mut cutter, &arp, 1)));
    }

    #[test]
    fn a_flow_that_was_quiet_begins_anew() {
        let mut cutter = cutter(&[(None, 100)]);
        let data = packet(7, 8);
        let kept = [0, 1, 299, 598, 899].map(|second| keeps(&mut cutter, &data, second));
        assert_eq!(kept, [true, false, false, false, true]);
    }

    #[test]
    fn a_flood_of_flows_takes_no_more_memory() {
        let mut cutter = cutter(&[(Some("udp"), 100)]);
        let all =
            (0..600_000_u32).map(|flow| packet((flow % 50_000) as u16, 60_000 + (flow / 50_000) as u16));
        let mut kept = all.into_iter().map(|data| keeps(&mut cutter, &data, 1));
        assert!(kept.all(|is_kept| is_kept));
        assert_eq!(cutter.flows.capacity(), BUCKETS);
    }

    #[test]
    fn a_filter_that_is_none_is_refused() {
        let cutoff = Cutoff { filter: Some("port".to_owned()), bytes: 1 };
        assert!(matches!(Cutter::new(&[cutoff], false), Err(Error::Setting(_))));
        assert!(matches!(Cutter::new(&[], false), Ok(None)));
    }

    #[test]
    fn a_flow_refused_under_overload_stays_so() {
        let mut cutter = Cutter::new(&[], true).unwrap().unwrap();
        let [known, new, later] = [packet(1, 2), packet(3, 4), packet(5, 6)];
        let mut of = |data: &[u8], second, refuses_new| verdict(&mut cutter, data, second, refuses_new);
        assert_eq!(of(&known, 0, false), FlowVerdict::Recorded);
        assert_eq!(of(&known, 1, true), FlowVerdict::Recorded);
        assert_eq!(of(&new, 1, true), FlowVerdict::Refused);
        // Both directions, and when the overload is over; another flow is recorded then.
        assert_eq!(of(&packet(4, 3), 2, false), FlowVerdict::Refused);
        assert_eq!(of(&later, 2, false), FlowVerdict::Recorded);
        // After five minutes without a packet it is a new flow.
        assert_eq!(of(&new, 303, false), FlowVerdict::Recorded);
    }
}
