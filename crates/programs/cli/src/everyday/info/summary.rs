//! All that packets say of themselves, in bounded memory.

use std::net::IpAddr;

use tapline_graph::Packets;
use tapline_packet::{Interface, Timestamp};

use super::ranking::{Amount, Ranking};
use super::tree::Tree;

#[derive(Clone, Debug)]
pub(super) struct InterfacePackets {
    pub(super) interface: Interface,
    pub(super) amount: Amount,
}

/// The summary of packets.
pub(super) struct Summary {
    pub(super) packets: u64,
    /// Bytes on the wire, and those that were captured.
    pub(super) bytes: u64,
    pub(super) captured: u64,
    /// Packets with fewer captured bytes than on the wire.
    pub(super) cut: u64,
    /// Packets without a time.
    pub(super) untimed: u64,
    /// The earliest and the latest time.
    pub(super) span: Option<(Timestamp, Timestamp)>,
    previous: Option<Timestamp>,
    /// Packets that are earlier than the one before, and by how much at most.
    pub(super) steps_back: u64,
    pub(super) step_back_max_ns: i64,
    /// The shortest and the longest packet on the wire.
    pub(super) lengths: Option<(u32, u32)>,
    pub(super) interfaces: Vec<InterfacePackets>,
    pub(super) tree: Tree,
    /// Hosts: a packet counts for its sender and for its receiver.
    pub(super) hosts: Ranking<IpAddr>,
    /// Services by protocol and lower port.
    pub(super) services: Ranking<(u8, u16)>,
}

impl Summary {
    pub(super) fn new() -> Summary {
        Summary {
            packets: 0,
            bytes: 0,
            captured: 0,
            cut: 0,
            untimed: 0,
            span: None,
            previous: None,
            steps_back: 0,
            step_back_max_ns: 0,
            lengths: None,
            interfaces: Vec::new(),
            tree: Tree::new(),
            hosts: Ranking::new(),
            services: Ranking::new(),
        }
    }

    /// Notes interfaces, which may have no packets.
    pub(super) fn join(&mut self, interfaces: &[Interface]) {
        let new = interfaces.iter().skip(self.interfaces.len()).cloned();
        self.interfaces
            .extend(new.map(|interface| InterfacePackets { interface, amount: Amount::default() }));
    }

    pub(super) fn take(&mut self, packets: &Packets<'_>) {
        if packets.interfaces.len() > self.interfaces.len() {
            self.join(packets.interfaces);
        }
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let (data, meta) = (packet.data, packet.meta);
            let wire_len = meta.wire_len;
            self.packets += 1;
            self.bytes += u64::from(wire_len);
            self.captured += data.len() as u64;
            self.cut += u64::from(data.len() < wire_len as usize);
            let (shortest, longest) = self.lengths.unwrap_or((wire_len, wire_len));
            self.lengths = Some((shortest.min(wire_len), longest.max(wire_len)));
            match meta.is_untimed {
                true => self.untimed += 1,
                false => self.time(meta.timestamp),
            }
            if let Some(interface) = self.interfaces.get_mut(meta.interface.0 as usize) {
                interface.amount.add(wire_len);
            }
            let headers = packets.headers(index);
            self.tree.add(&headers, data, wire_len);
            if let Some((source, destination)) = headers.addresses(data) {
                self.hosts.add(source, wire_len);
                if source != destination {
                    self.hosts.add(destination, wire_len);
                }
            }
            if let (Some((source, destination)), Some(protocol)) = (headers.ports(data), headers.protocol()) {
                self.services.add((protocol, source.min(destination)), wire_len);
            }
        }
    }

    fn time(&mut self, time: Timestamp) {
        let (first, last) = self.span.unwrap_or((time, time));
        self.span = Some((first.min(time), last.max(time)));
        if let Some(previous) = self.previous.replace(time)
            && time < previous
        {
            self.steps_back += 1;
            self.step_back_max_ns = self.step_back_max_ns.max(previous.since(time));
        }
    }

    /// From the earliest packet to the latest, in nanoseconds.
    pub(super) fn duration_ns(&self) -> Option<u64> {
        let (first, last) = self.span?;
        u64::try_from(last.since(first)).ok()
    }

    /// A number for each second of the duration; `None` without a duration.
    pub(super) fn per_second(&self, number: u64) -> Option<f64> {
        let ns = self.duration_ns().filter(|ns| *ns > 0)?;
        Some(number as f64 * 1e9 / ns as f64)
    }

    /// The mean length on the wire.
    pub(super) fn mean_len(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.bytes as f64 / self.packets as f64)
    }
}
