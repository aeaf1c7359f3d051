//! A plan for records that go to an exporter: the place there of each field, found once for the templates of both.
//!
//! ```text
//! record of the template   numbers, addresses --copied by length---------------------\
//!                          times, VLAN, end, sampling interval, exporter --computed--> record of the exporter
//! ```
//!
//! The octets are those that the flow of the record would have there. Records of ICMP, and those of templates without a
//! [`Plan`], need a flow.

use std::net::IpAddr;
use std::sync::Arc;

use tapline_flow::EndReason;
use tapline_flow::export::{LayoutField, RecordLayout, Value};
use tapline_packet::Timestamp;

use super::plan::{Address, Number};
use super::{MS, Plan, WINDOW};

/// Octets of an exporter's record at most, with those behind it that a field at the last place may have.
const ROOM: usize = 256 + 16;
/// Plans that are kept. Those of further templates are made again with each set.
const PLANS_MAX: usize = 32;

/// A record of an exporter. Its fields begin in the first 256 octets.
type Record = [u8; ROOM];

/// A number that is copied: its low octets.
#[derive(Clone, Copy, Debug)]
struct NumberCopy {
    from: Number,
    to: u8,
}

/// The places in the records of an exporter for the fields of a plan.
#[derive(Debug)]
pub(crate) struct CopyPlan {
    plan: Plan,
    is_v6: bool,
    len: usize,
    /// The record that was made last. Fields that no record has stay 0.
    record: Box<Record>,
    long: Vec<NumberCopy>,
    words: Vec<NumberCopy>,
    halves: Vec<NumberCopy>,
    octets: Vec<NumberCopy>,
    /// Addresses of IPv6: their places in both records.
    addresses: Vec<(u8, u8)>,
    start: Option<u8>,
    end: Option<u8>,
    vlan: Option<u8>,
    end_reason: Option<u8>,
    sampling: Option<u8>,
    domain: Option<u8>,
    /// The exporter's address of IPv4 and of IPv6.
    exporters: [Option<u8>; 2],
}

impl CopyPlan {
    /// The plan for records of a template that go to an exporter.
    ///
    /// # Errors
    /// The plan as it was, if one of its fields cannot be copied.
    fn new(plan: Plan, layout: &RecordLayout) -> Result<CopyPlan, Plan> {
        let mut versions = plan.addresses.iter().flatten().map(|address| address.is_v6);
        let is_v6 = versions.next().unwrap_or(false);
        if versions.any(|other| other != is_v6) || layout.record_len(is_v6) > 256 {
            return Err(plan);
        }
        let mut copy = CopyPlan {
            plan,
            is_v6,
            len: layout.record_len(is_v6),
            record: Box::new([0; ROOM]),
            long: Vec::new(),
            words: Vec::new(),
            halves: Vec::new(),
            octets: Vec::new(),
            addresses: Vec::new(),
            start: None,
            end: None,
            vlan: None,
            end_reason: None,
            sampling: None,
            domain: None,
            exporters: [None; 2],
        };
        match layout.fields(is_v6).iter().try_for_each(|field| copy.add(*field)) {
            Some(()) => Ok(copy),
            None => Err(copy.plan),
        }
    }

    /// Adds a field of the exporter.
    fn add(&mut self, LayoutField { value, at, len }: LayoutField) -> Option<()> {
        let to = u8::try_from(at).ok()?;
        // Values that are computed, or are not in the record.
        let place = match value {
            Value::SamplingInterval => &mut self.sampling,
            Value::Vlan => &mut self.vlan,
            Value::ExporterV4 => &mut self.exporters[0],
            Value::ExporterV6 => &mut self.exporters[1],
            Value::EndReason => &mut self.end_reason,
            Value::ObservationDomain => &mut self.domain,
            Value::StartMilliseconds => &mut self.start,
            Value::EndMilliseconds => &mut self.end,
            Value::StartUptime | Value::EndUptime | Value::StartSeconds | Value::EndSeconds => return None,
            // Only ICMP has it.
            Value::IcmpTypeCode => return Some(()),
            Value::IpVersion => {
                let is_known = self.plan.addresses.iter().any(Option::is_some);
                self.record[at] = if is_known { 4 + 2 * u8::from(self.is_v6) } else { 0 };
                return Some(());
            }
            _ => match self.plan.address(value).copied() {
                Some(address) => return self.add_address(address, to, len),
                None => return self.add_number(value, to, len),
            },
        };
        // Two elements may have the VLAN.
        place.replace(to).is_none().then_some(())
    }

    fn add_number(&mut self, value: Value, to: u8, len: usize) -> Option<()> {
        let from = *self.plan.number(value)?.0;
        if from.is_given() {
            self.of_len(len)?.push(NumberCopy { from, to });
        }
        Some(())
    }

    fn add_address(&mut self, address: Option<Address>, to: u8, len: usize) -> Option<()> {
        match (address.filter(|address| address.is_v6 == self.is_v6), self.is_v6, len) {
            (None, ..) => {}
            (Some(address), false, 4) => self.words.push(NumberCopy { from: address.number(), to }),
            (Some(address), true, 16) => self.addresses.push((address.at, to)),
            _ => return None,
        }
        Some(())
    }

    fn of_len(&mut self, len: usize) -> Option<&mut Vec<NumberCopy>> {
        match len {
            8 => Some(&mut self.long),
            4 => Some(&mut self.words),
            2 => Some(&mut self.halves),
            1 => Some(&mut self.octets),
            _ => None,
        }
    }

    pub(crate) fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// Packets and bytes of a record.
    #[inline(always)]
    pub(crate) fn counters(&self, record: &[u8; WINDOW]) -> (u64, u64) {
        (self.plan.packets.read(record), self.plan.octets.read(record))
    }

    /// Sets the values that all records of a set have.
    pub(crate) fn begin_set(&mut self, exporter: IpAddr, domain: u32) {
        self.put_exporter(exporter);
        if let Some(to) = self.domain {
            put::<4>(domain.into(), to, &mut self.record);
        }
    }

    fn put_exporter(&mut self, exporter: IpAddr) {
        let (v4, v6) = match exporter {
            IpAddr::V4(address) => (address.octets(), [0; 16]),
            IpAddr::V6(address) => ([0; 4], address.octets()),
        };
        let [v4_to, v6_to] = self.exporters.map(|to| to.map(usize::from));
        if let Some(to) = v4_to {
            self.record[to..to + 4].copy_from_slice(&v4);
        }
        if let Some(to) = v6_to {
            self.record[to..to + 16].copy_from_slice(&v6);
        }
    }

    /// Makes the exporter's record of one that is not of ICMP. `exporter` is the address of the source.
    #[inline]
    pub(crate) fn copy(
        &mut self,
        from: &[u8; WINDOW],
        (first, last): (Timestamp, Timestamp),
        sampling: Option<u32>,
        exporter: IpAddr,
    ) -> &[u8] {
        if let Some(own) = self.plan.exporter {
            let own = own.read(from);
            self.put_exporter(if own.is_unspecified() { exporter } else { own });
        }
        let record = &mut *self.record;
        put_all::<8>(&self.long, from, record);
        put_all::<4>(&self.words, from, record);
        put_all::<2>(&self.halves, from, record);
        put_all::<1>(&self.octets, from, record);
        for (at, to) in &self.addresses {
            let (at, to) = (usize::from(*at), usize::from(*to));
            record[to..to + 16].copy_from_slice(&from[at..at + 16]);
        }
        let millis = |time: Timestamp| time.as_nanos().div_euclid(MS) as u64;
        if let Some(to) = self.start {
            put::<8>(millis(first), to, record);
        }
        if let Some(to) = self.end {
            put::<8>(millis(last), to, record);
        }
        if let Some(to) = self.vlan {
            put::<2>(self.plan.vlan.read(from) & 0x0fff, to, record);
        }
        if let Some(to) = self.end_reason {
            put::<1>(end_reason(self.plan.end_reason.read(from) as u8) as u64, to, record);
        }
        if let Some(to) = self.sampling {
            put::<4>(sampling.unwrap_or(0).into(), to, record);
        }
        &record[..self.len]
    }
}

/// The reason for the end by its number. SiLK's mode of YAF marks a flow that goes on with a bit of its own.
pub(super) fn end_reason(number: u8) -> EndReason {
    EndReason::of_number(number & 0x1f)
}

#[inline(always)]
fn put_all<const LEN: usize>(copies: &[NumberCopy], from: &[u8; WINDOW], record: &mut Record) {
    for copy in copies {
        put::<LEN>(copy.from.read(from), copy.to, record);
    }
}

/// Writes the low octets of a number.
#[inline(always)]
fn put<const LEN: usize>(number: u64, to: u8, record: &mut Record) {
    let to = usize::from(to);
    if let Some(low) = number.to_be_bytes().last_chunk::<LEN>() {
        record[to..to + LEN].copy_from_slice(low);
    }
}

/// The plans of the templates that came last, to one exporter.
#[derive(Debug, Default)]
pub(crate) struct CopyPlans {
    layout: Option<Arc<RecordLayout>>,
    /// An error is a plan that cannot be copied.
    plans: Vec<Result<CopyPlan, Plan>>,
    /// The one that was replaced last.
    replaced: usize,
}

impl CopyPlans {
    /// The plan for records of a template to an exporter; `None` if they need flows.
    pub(crate) fn of(&mut self, plan: &Plan, layout: &Arc<RecordLayout>) -> Option<&mut CopyPlan> {
        if !self.layout.as_ref().is_some_and(|known| Arc::ptr_eq(known, layout)) {
            *self = CopyPlans { layout: Some(Arc::clone(layout)), ..CopyPlans::default() };
        }
        let is_it = |known: &Result<CopyPlan, Plan>| match known {
            Ok(copy) => copy.plan == *plan,
            Err(known) => known == plan,
        };
        let known = self.plans.iter().position(is_it);
        let at = known.unwrap_or_else(|| {
            let made = CopyPlan::new(plan.clone(), layout);
            if self.plans.len() < PLANS_MAX {
                self.plans.push(made);
                return self.plans.len() - 1;
            }
            self.replaced = (self.replaced + 1) % PLANS_MAX;
            self.plans[self.replaced] = made;
            self.replaced
        });
        self.plans[at].as_mut().ok()
    }
}

#[cfg(test)]
mod tests {
    use tapline_flow::export::ExportOptions;

    use super::*;
    use crate::template::{Form, RawField, Template};

    const COLLECTED: &str = "default,samplingInterval,exporterIPv4Address,exporterIPv6Address,bgpSourceAsNumber,\
        bgpDestinationAsNumber,ipNextHopIPv4Address";

    fn plan(fields: &[(u16, u16)]) -> Plan {
        let raw = fields.iter().map(|&(id, len)| RawField { enterprise: 0, id, len });
        let template = Template::new(raw.collect(), 0, Form::Ipfix).expect("records have octets");
        template.plan.expect("it has one")
    }

    fn layout(template: &str) -> Arc<RecordLayout> {
        let options =
            ExportOptions { template: template.to_owned(), is_collected: true, ..ExportOptions::default() };
        Arc::new(RecordLayout::of(&options).expect("the elements exist").expect("their lengths are fixed"))
    }

    #[test]
    fn common_templates_are_copied() {
        let layout = layout(COLLECTED);
        let router = [8, 12, 15, 10, 14, 2, 1, 22, 21, 16, 17].map(|id| (id, 4));
        let router = [&router[..], &[(7, 2), (11, 2), (6, 1), (4, 1), (5, 1), (61, 1), (48, 1)]].concat();
        assert!(CopyPlan::new(plan(&router), &layout).is_ok());
        let v6 = [(27, 16), (28, 16), (62, 16), (152, 8), (153, 8), (1, 8), (2, 8), (139, 2), (131, 16)];
        assert!(CopyPlan::new(plan(&v6), &layout).is_ok_and(|plan| plan.is_v6()));
    }

    #[test]
    fn other_fields_need_a_flow() {
        let plan_of_v4 = plan(&[(8, 4), (12, 4), (1, 4), (2, 4)]);
        for template in
            ["default,flowStartSeconds", "default,natEvent", "vlanId,dot1qVlanId", "initialTCPFlags"]
        {
            assert!(CopyPlan::new(plan_of_v4.clone(), &layout(template)).is_err(), "{template}");
        }
        let two_versions = plan(&[(8, 4), (28, 16), (1, 4), (2, 4)]);
        assert!(CopyPlan::new(two_versions, &layout(COLLECTED)).is_err());
    }

    #[test]
    fn plans_have_a_bound() {
        let (layout, mut plans) = (layout(COLLECTED), CopyPlans::default());
        for round in 0..3 {
            for len in 0..100 {
                let plan = plan(&[(210, 1 + len), (8, 4), (12, 4), (1, 4), (2, 4)]);
                let copy = plans.of(&plan, &layout).expect("it can be copied");
                assert_eq!(copy.plan, plan, "{round}");
            }
        }
        assert_eq!(plans.plans.len(), PLANS_MAX);
    }
}
