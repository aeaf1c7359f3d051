//! Records of collected flows, made without a [`Flow`] in between.
//!
//! ```text
//! layout  fields of the exporter's records and their places, for IPv4 and for IPv6
//! batch   record | record | record ...      written by a collector at these places, or of flows; all of one exporter
//!         \-- a run of IPv4 --/ \-- of IPv6
//! ```
//!
//! A run goes into messages as it is: they are those that its flows would have made, octet by octet.

use std::net::IpAddr;

use super::element::{FixedRecord, RecordView, Value};
use super::template::Template;
use super::{ExportOptions, Version};
use crate::{Error, Flow, Sampling};

/// A field of the records of an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutField {
    /// Source of the field's value.
    pub value: Value,
    /// The place of the field, in octets from the beginning of the record.
    pub at: usize,
    /// The length in octets.
    pub len: usize,
}

/// The fields of the records of an exporter of IPFIX, and their places. None of them varies in length, and each record
/// is of one direction.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// For IPv4, then for IPv6.
    fields: [Vec<LayoutField>; 2],
    records: [FixedRecord; 2],
    /// The exporter's own, for flows that were not collected.
    domain: u32,
    exporter: Option<IpAddr>,
}

impl RecordLayout {
    /// The layout of an exporter with these options; `None` if its records have none.
    ///
    /// # Errors
    /// [`Error::Element`] or [`Error::Template`] for an invalid template.
    pub fn of(options: &ExportOptions) -> Result<Option<RecordLayout>, Error> {
        Ok(RecordLayout::of_templates(&Template::both(options)?, options))
    }

    pub(super) fn of_templates(templates: &[Template; 2], options: &ExportOptions) -> Option<RecordLayout> {
        if options.version != Version::Ipfix || options.biflow || options.spreads_flows {
            return None;
        }
        let [v4, v6] = templates;
        let records = [v4.fixed.clone()?, v6.fixed.clone()?];
        let ExportOptions { domain, exporter, .. } = *options;
        Some(RecordLayout { fields: [fields(v4), fields(v6)], records, domain, exporter })
    }

    /// The fields of a record, in order.
    pub fn fields(&self, is_v6: bool) -> &[LayoutField] {
        &self.fields[usize::from(is_v6)]
    }

    /// The length of a record in octets.
    pub fn record_len(&self, is_v6: bool) -> usize {
        self.records[usize::from(is_v6)].len()
    }
}

fn fields(template: &Template) -> Vec<LayoutField> {
    let mut at = 0;
    let field = |field: &super::template::Field| {
        let len = usize::from(field.element.len);
        at += len;
        LayoutField { value: field.element.value, at: at - len, len }
    };
    template.fields.iter().map(field).collect()
}

/// Records in a layout, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RecordBatch {
    octets: Vec<u8>,
    /// Records in a row of one version of IP: whether it is IPv6, and how many.
    runs: Vec<(bool, usize)>,
    /// The packets of each record for which the outputs answer.
    packets: Vec<u64>,
    flows: u64,
}

/// Records in a row of one version of IP.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'b> {
    pub(super) is_v6: bool,
    pub(super) octets: &'b [u8],
    /// The packets of each record.
    pub(super) packets: &'b [u64],
}

impl RecordBatch {
    /// Takes all records out.
    pub fn clear(&mut self) {
        self.octets.clear();
        self.runs.clear();
        self.packets.clear();
        self.flows = 0;
    }

    /// Flows whose records these are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// Packets for which the outputs answer.
    pub fn packets(&self) -> u64 {
        self.packets.iter().sum()
    }

    /// Adds the records of a flow, one for each direction that sent.
    pub fn add_flow(&mut self, layout: &RecordLayout, flow: &Flow) {
        let is_v6 = flow.endpoints[0].address.is_ipv6();
        let RecordLayout { records, domain, exporter, .. } = layout;
        for from in flow.senders() {
            let side = &flow.endpoints[from];
            // IPFIX has no uptimes, and collected flows their own sampling.
            let view = RecordView {
                flow,
                from,
                first: side.first,
                last: side.last,
                boot_ms: 0,
                domain: *domain,
                exporter: *exporter,
                sampling: Sampling::NONE,
                places: None,
            };
            view.write_fixed(&records[usize::from(is_v6)], &mut self.octets);
            self.count(is_v6, flow.answered_packets_of(from));
        }
        self.flows += 1;
    }

    /// Adds the record of a flow of one direction, of the length that the layout has for this version of IP. `packets`
    /// are those for which the outputs answer.
    #[inline]
    pub fn add_record(&mut self, is_v6: bool, record: &[u8], packets: u64) {
        self.octets.extend_from_slice(record);
        self.count(is_v6, packets);
        self.flows += 1;
    }

    #[inline]
    fn count(&mut self, is_v6: bool, packets: u64) {
        self.packets.push(packets);
        match self.runs.last_mut() {
            Some((is_of_v6, count)) if *is_of_v6 == is_v6 => *count += 1,
            _ => self.runs.push((is_v6, 1)),
        }
    }

    pub(super) fn runs<'b>(&'b self, layout: &RecordLayout) -> impl Iterator<Item = Run<'b>> {
        let (mut octets, mut packets) = (self.octets.as_slice(), self.packets.as_slice());
        self.runs.iter().map_while(move |&(is_v6, count)| {
            let (of_run, rest) = octets.split_at_checked(count * layout.record_len(is_v6))?;
            let (packets_of_run, packets_behind) = packets.split_at_checked(count)?;
            (octets, packets) = (rest, packets_behind);
            Some(Run { is_v6, octets: of_run, packets: packets_of_run })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(template: &str) -> ExportOptions {
        ExportOptions { template: template.to_owned(), is_collected: true, ..ExportOptions::default() }
    }

    #[test]
    fn fields_follow_each_other() {
        let layout = RecordLayout::of(&options("default,bgpSourceAsNumber,initialTCPFlags"));
        let layout = layout.expect("they exist").expect("no length varies");
        for (is_v6, len) in [(false, 4), (true, 16)] {
            let fields = layout.fields(is_v6);
            let first = [0, 1].map(|at| (fields[at].value, fields[at].len));
            assert_eq!(first, [(Value::SourceAddress, len), (Value::DestinationAddress, len)]);
            let ends = fields.iter().map(|field| field.at + field.len);
            let begins: Vec<usize> =
                fields.iter().map(|field| field.at).skip(1).chain([layout.record_len(is_v6)]).collect();
            assert_eq!(ends.collect::<Vec<_>>(), begins);
            assert_eq!(fields.last().map(|field| field.value), Some(Value::TcpFlagsFirst));
        }
    }

    #[test]
    fn records_without_fixed_places_have_no_layout() {
        let none = |options: ExportOptions| RecordLayout::of(&options).expect("it is valid").is_none();
        assert!(none(options("default,applicationName")));
        assert!(none(ExportOptions { version: Version::V9, ..options("") }));
        assert!(none(ExportOptions { biflow: true, ..options("") }));
        assert!(!none(options("")));
    }
}
