//! Flows for rules: those that begin, and those that have ended, by the time of the packets.
//!
//! Flows that end are reported at whole seconds and in a fixed order, so that a live run and a file of its packets
//! give the same events.

use std::net::IpAddr;

use tapline_flow::{Flow, FlowContext, Meter, MeterSettings};
use tapline_packet::numbers::ip_protocol::{TCP, has_ports};
use tapline_packet::{BATCH_MAX, Batch, Interface, Meta, Record, Selection, Timestamp, VlanTag};

use crate::rules::Settings;

/// A flow that goes on is not cut for this long, in nanoseconds: one begins once.
const ACTIVE_NS: i64 = 86_400_000_000_000;

/// The flows of a run.
pub(crate) struct Flows {
    meter: Meter,
    /// Settings with which the meter was made.
    settings: Settings,
    ended: Vec<Flow>,
    begun: Vec<u8>,
}

impl Flows {
    pub(crate) fn new(settings: &Settings) -> Result<Flows, String> {
        let of_meter = MeterSettings {
            active_ns: ACTIVE_NS,
            idle_ns: settings.flow_idle_ns as i64,
            flows_max: settings.flows_max as usize,
            ..MeterSettings::default()
        };
        let mut meter = Meter::new(&of_meter).map_err(|error| error.to_string())?;
        meter.track_begun();
        Ok(Flows { meter, settings: *settings, ended: Vec::new(), begun: Vec::new() })
    }

    /// The names of settings that have other values here: a meter keeps its own.
    pub(crate) fn kept_settings(&self, settings: &Settings) -> Vec<&'static str> {
        let idle = (self.settings.flow_idle_ns != settings.flow_idle_ns).then_some("flow_idle");
        let most = (self.settings.flows_max != settings.flows_max).then_some("flows_max");
        idle.into_iter().chain(most).collect()
    }

    /// Sets the clock back to `now_ns`, after all flows were taken as ended.
    pub(crate) fn set_back(&mut self, now_ns: i64) {
        self.meter.reset_clock(Timestamp::from_nanos(now_ns));
    }

    /// Counts packets; those that begin flows.
    pub(crate) fn push(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Selection {
        self.meter.push(batch, &mut selection.clone(), interfaces, &mut self.ended);
        self.begun.clear();
        self.begun.extend_from_slice(self.meter.begun());
        self.begun.sort_unstable();
        let mut first = Selection::none();
        self.begun.iter().for_each(|index| first.push(usize::from(*index)));
        first
    }

    /// Whether there are flows that may end.
    pub(crate) fn is_active(&self) -> bool {
        !self.ended.is_empty() || self.meter.statistics().active > 0
    }

    /// The flows that have ended at `now_ns`, in a fixed order.
    pub(crate) fn take_ended(&mut self, now_ns: i64, is_last: bool) -> Vec<Flow> {
        self.meter.set_clock(Timestamp::from_nanos(now_ns));
        loop {
            let is_all = match is_last {
                true => self.meter.finish(&mut self.ended),
                false => self.meter.expire(&mut self.ended),
            };
            if is_all {
                break;
            }
        }
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|flow| {
            let ends = flow.endpoints.map(|end| (end.address, end.port));
            (flow.last(), flow.first(), ends, flow.protocol)
        });
        ended
    }
}

/// Frames made of flows, so that filters can be asked about them.
#[derive(Debug, Default)]
pub struct FlowFrames {
    bytes: Vec<u8>,
    records: Vec<Record>,
}

impl FlowFrames {
    /// A frame of Ethernet for each flow, of [`BATCH_MAX`] at most, from the side that began it: addresses, protocol,
    /// ports, TCP flags of that side, VLAN; no payload.
    pub fn make(&mut self, flows: &[Flow]) -> Batch<'_> {
        self.bytes.clear();
        self.records.clear();
        for flow in flows.iter().take(BATCH_MAX) {
            let offset = self.bytes.len();
            write_frame(&mut self.bytes, flow);
            let len = (self.bytes.len() - offset) as u32;
            let vlan = flow.context.vlan;
            let tag = (vlan != FlowContext::NO_VLAN).then_some(VlanTag { tpid: 0x8100, tci: vlan });
            let meta = Meta { timestamp: flow.last(), wire_len: len, vlan: tag, ..Meta::default() };
            self.records.push(Record { offset, cap_len: len, options_len: 0, meta });
        }
        Batch::new(&self.bytes, &self.records)
    }
}

fn write_frame(bytes: &mut Vec<u8>, flow: &Flow) {
    let [from, to] = &flow.endpoints;
    let transport_len: u16 = match flow.protocol {
        TCP => 20,
        _ => 8,
    };
    bytes.extend_from_slice(&[0; 12]);
    match (from.address, to.address) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend_from_slice(&[0x08, 0x00, 0x45, from.tos]);
            bytes.extend_from_slice(&(20 + transport_len).to_be_bytes());
            bytes.extend_from_slice(&[0, 0, 0x40, 0, from.ttl_max, flow.protocol, 0, 0]);
            bytes.extend_from_slice(&source.octets());
            bytes.extend_from_slice(&destination.octets());
        }
        (source, destination) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            bytes.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
            bytes.extend_from_slice(&transport_len.to_be_bytes());
            bytes.extend_from_slice(&[flow.protocol, from.ttl_max]);
            bytes.extend_from_slice(&octets(source));
            bytes.extend_from_slice(&octets(destination));
        }
    }
    let (source, destination) = (from.port.to_be_bytes(), to.port.to_be_bytes());
    match flow.protocol {
        TCP => {
            bytes.extend_from_slice(&source);
            bytes.extend_from_slice(&destination);
            bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0x50, from.tcp_flags, 0, 0, 0, 0, 0, 0]);
        }
        protocol if has_ports(protocol) => {
            bytes.extend_from_slice(&source);
            bytes.extend_from_slice(&destination);
            bytes.extend_from_slice(&[0, 8, 0, 0]);
        }
        // Of ICMP the destination's port is type and code.
        _ => {
            bytes.extend_from_slice(&destination);
            bytes.extend_from_slice(&[0; 6]);
        }
    }
}
