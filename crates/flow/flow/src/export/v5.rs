//! NetFlow v5.
//!
//! ```text
//! header   version 2 | count 2 | uptime ms 4 | seconds 4 | ns 4 | sequence 4 | engine type 1, id 1 | sampling: mode 2b, interval 14b
//! record   source 4 | destination 4 | next hop 4 | in 2 | out 2 | packets 4 | octets 4 | first ms 4 | last ms 4 | ports 2, 2 |
//!          0 1 | TCP flags 1 | protocol 1 | ToS 1 | AS 2, 2 | masks 1, 1 | 0 2                          48 octets, at most 30
//! ```
//!
//! The sequence counts the flows that were sent before. Counters have 32 bits: a flow with more becomes several
//! records. IPv6 has no place.

use std::net::IpAddr;
use std::sync::Arc;

use tapline_geo::Places;
use tapline_packet::Timestamp;

use super::element::millis;
use super::encoder::{UptimeEpoch, numbers, words};
use super::{ExportOptions, Message, MessageSink, Version};
use crate::{Endpoint, Error, Flow, Sampling};

const HEADER_LEN: usize = 24;
const RECORD_LEN: usize = 48;
const RECORDS_MAX: usize = 30;
/// The sampling interval has 14 bits; mode 2 is random sampling.
pub(super) const SAMPLING_MAX: u32 = 0x3fff;
const SAMPLING_MODE: u16 = 2 << 14;

/// Replaces numbers of more than 16 bits (RFC 6793, 9).
const AS_TRANS: u16 = 23456;

/// Makes messages of flows.
pub(super) struct V5 {
    engine: [u8; 2],
    sampling: u16,
    records_max: usize,
    /// A message with so many records does not wait for a further one.
    is_sent_early: bool,
    boot: UptimeEpoch,
    sequence: u32,
    records: Vec<u8>,
    packets: u64,
    places: Option<Arc<Places>>,
}

impl V5 {
    /// An encoder for messages of at most `room` octets.
    pub(super) fn new(options: &ExportOptions, room: usize) -> V5 {
        let asked = if options.message_records == 0 { RECORDS_MAX } else { options.message_records as usize };
        let records_max = asked.min(room.saturating_sub(HEADER_LEN) / RECORD_LEN);
        V5 {
            engine: (options.domain as u16).to_be_bytes(),
            sampling: 0,
            records_max: records_max.clamp(1, RECORDS_MAX),
            is_sent_early: options.message_records > 0,
            boot: UptimeEpoch::default(),
            sequence: 0,
            records: Vec::with_capacity(RECORDS_MAX * RECORD_LEN),
            packets: 0,
            places: None,
        }
    }

    pub(super) fn set_places(&mut self, places: &Arc<Places>) {
        self.places = Some(Arc::clone(places));
    }

    pub(super) fn set_sampling(&mut self, sampling: Sampling) -> Result<(), Error> {
        Version::V5.check_sampling(sampling)?;
        self.sampling = match sampling.packet_interval() {
            0 | 1 => 0,
            interval => SAMPLING_MODE | interval as u16,
        };
        Ok(())
    }

    pub(super) fn waiting(&self) -> u64 {
        self.packets
    }

    pub(super) fn add(&mut self, flow: &Flow, sink: &mut MessageSink<'_>) {
        let [IpAddr::V4(_), _] = flow.endpoints.map(|side| side.address) else {
            let packets = flow.answered_packets();
            sink.account.left_out += packets;
            sink.account.packets.lost += packets;
            return;
        };
        if !self.boot.reaches(flow.first(), flow.last()) {
            self.flush(sink);
            self.boot.set(flow.first());
        }
        for (from, side) in flow.endpoints.iter().enumerate().filter(|(_, side)| side.packets > 0) {
            let mut answered = flow.answered_packets_of(from);
            for (packets, bytes) in parts(side) {
                if self.records.len() == self.records_max * RECORD_LEN {
                    self.flush(sink);
                }
                self.record(flow, from, packets, bytes);
                let part = answered.min(packets.into());
                (self.packets, answered) = (self.packets + part, answered - part);
                sink.account.records += 1;
            }
        }
        if self.is_sent_early && self.records.len() >= self.records_max * RECORD_LEN {
            self.flush(sink);
        }
    }

    fn record(&mut self, flow: &Flow, from: usize, packets: u32, bytes: u32) {
        let (source, destination) = (&flow.endpoints[from], &flow.endpoints[1 - from]);
        let uptime = |time: Timestamp| (millis(time) - self.boot.millis()) as u32;
        let (first, last) = (uptime(source.first), uptime(source.last));
        let systems = self.autonomous_systems(flow, from);
        let out = &mut self.records;
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        for side in [source, destination] {
            match side.address {
                IpAddr::V4(address) => put(&address.octets()),
                IpAddr::V6(_) => put(&[0; 4]),
            }
        }
        put(&[0; 4]);
        put(&(flow.context.interface as u16).to_be_bytes());
        let egress = flow.collected.as_ref().map_or(0, |collected| collected.egress as u16);
        put(&egress.to_be_bytes());
        for number in [packets, bytes, first, last] {
            put(&number.to_be_bytes());
        }
        put(&source.port.to_be_bytes());
        put(&destination.port.to_be_bytes());
        put(&[0, source.tcp_flags, flow.protocol, source.tos]);
        systems.iter().for_each(|system| put(&system.to_be_bytes()));
        put(&[0; 4]);
    }

    /// Autonomous systems of source and destination: the router's numbers, or else those of the files of places.
    fn autonomous_systems(&self, flow: &Flow, from: usize) -> [u16; 2] {
        [from, 1 - from].map(|side| {
            let told = flow.collected.as_ref().map_or(0, |collected| collected.autonomous_systems[side]);
            let places = self.places.as_deref().filter(|_| told == 0);
            let number = places.map_or(told, |places| places.of(flow.endpoints[side].address).as_number);
            u16::try_from(number).unwrap_or(AS_TRANS)
        })
    }

    pub(super) fn flush(&mut self, sink: &mut MessageSink<'_>) {
        if self.records.is_empty() {
            return;
        }
        let count = (self.records.len() / RECORD_LEN) as u16;
        let (seconds, uptime) = self.boot.at(sink.now);
        let mut message = Vec::with_capacity(HEADER_LEN + self.records.len());
        words(&mut message, &[5, count]);
        numbers(&mut message, &[uptime, seconds, 0, self.sequence]);
        message.extend(self.engine);
        message.extend(self.sampling.to_be_bytes());
        message.extend_from_slice(&self.records);
        // NetFlow v5 has no templates, so a new session needs nothing sent again.
        sink.send(&Message { bytes: &message, packets: self.packets });
        self.sequence = self.sequence.wrapping_add(count.into());
        self.records.clear();
        self.packets = 0;
    }
}

/// Packets and octets of each record that a side takes: one, unless a counter has more than 32 bits.
fn parts(side: &Endpoint) -> impl Iterator<Item = (u32, u32)> + use<> {
    const MAX: u64 = u32::MAX as u64;
    let (packets, bytes) = (side.packets, side.bytes);
    let count = packets.div_ceil(MAX).max(bytes.div_ceil(MAX)).max(1);
    // The first ones have one more where it does not divide.
    let share = move |all: u64, at: u64| (all / count + u64::from(at < all % count)) as u32;
    (0..count).map(move |at| (share(packets, at), share(bytes, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn great_counters_become_several_records() {
        let side = |packets, bytes| Endpoint {
            address: IpAddr::from([10, 0, 0, 1]),
            port: 1,
            packets,
            bytes,
            first: Timestamp::EPOCH,
            last: Timestamp::EPOCH,
            tcp_flags: 0,
            tcp_flags_first: 0,
            ttl_min: 1,
            ttl_max: 1,
            tos: 0,
        };
        for (packets, bytes, count) in [(1, 60, 1), (10, 1 << 33, 3), (1 << 34, 1 << 40, 257), (3, 0, 1)] {
            let parts: Vec<(u32, u32)> = parts(&side(packets, bytes)).collect();
            assert_eq!(parts.len(), count);
            assert_eq!(parts.iter().map(|part| u64::from(part.0)).sum::<u64>(), packets);
            assert_eq!(parts.iter().map(|part| u64::from(part.1)).sum::<u64>(), bytes);
        }
    }
}
