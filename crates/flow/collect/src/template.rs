//! Templates: the fields of records, and where they lie.
//!
//! ```text
//! v9       id 2 | fields 2 | (type 2, length 2)*                                      options: id | scope octets 2 | option octets 2
//! IPFIX    id 2 | fields 2 | (number 2, length 2, enterprise 4 if the top bit is set)*  options: id | fields 2 | scopes 2
//! ```

use std::collections::HashSet;

use tapline_dissect::ByteReader;
use tapline_flow::export::{Foreign, Value};

use crate::draft::{PlacedField, Plan};

/// Fields of a template at most: no router's comes near.
pub(crate) const FIELDS_MAX: usize = 512;
/// Approximate memory of a field, and of a template in addition to its fields, in bytes.
const FIELD_LEN: usize = 24;
const TEMPLATE_LEN: usize = 160 + size_of::<Option<Plan>>();
/// Octets of a record of a flow at least: two counters of two octets, and four octets for the counted quantity.
/// Shorter ones describe nothing, and a datagram would have tens of thousands of them.
pub(crate) const RECORD_LEN_MIN: usize = 8;
/// The length that says that each record has its own (RFC 7011, 7).
const VARIABLE: u16 = u16::MAX;
/// The bit that says that an enterprise number follows.
const ENTERPRISE_BIT: u16 = 0x8000;
/// The least id of a template (RFC 7011, 3.4.1); those below are sets of other kinds.
pub(crate) const LEAST_ID: u16 = 256;

/// A field as the exporter declared it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawField {
    /// 0 for IANA's.
    pub(crate) enterprise: u32,
    pub(crate) id: u16,
    pub(crate) len: u16,
}

/// A template of records of flows, or of options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) raw: Box<[RawField]>,
    /// Fields that are scopes; 0 for records of flows.
    pub(crate) scopes: u16,
    /// Octets of a record; where lengths vary, of the shortest.
    pub(crate) record_len: usize,
    pub(crate) is_variable: bool,
    steps: Box<[Step]>,
    /// For records of flows whose fields need not be read one after the other.
    pub(crate) plan: Option<Plan>,
}

/// A field that is read: at `at`, if all lengths are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    at: u16,
    len: u16,
    /// `None` for a field that is skipped; only templates of variable length have such steps.
    field: Option<(Value, bool)>,
}

/// The form of templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    V9,
    Ipfix,
}

/// A template with its id, or the end of one.
pub(crate) enum TemplateChange {
    Template(u16, Template),
    /// IPFIX's withdrawal (RFC 7011, 8.1), which UDP has no use for.
    Withdrawal,
    /// The template has too many fields.
    TooLong,
}

impl Template {
    /// A template of these fields; `None` if its records would have no octets, or more than a datagram.
    pub(crate) fn new(raw: Box<[RawField]>, scopes: u16, form: Form) -> Option<Template> {
        let is_variable = raw.iter().any(|field| field.len == VARIABLE);
        let least = |field: &RawField| if field.len == VARIABLE { 1 } else { usize::from(field.len) };
        let record_len: usize = raw.iter().map(least).sum();
        if record_len == 0 || record_len > usize::from(u16::MAX) || usize::from(scopes) > raw.len() {
            return None;
        }
        let mut at = 0;
        let mut steps: Vec<Step> = Vec::new();
        let mut seen = HashSet::new();
        for (place, field) in raw.iter().enumerate() {
            let is_scope9 = form == Form::V9 && place < usize::from(scopes);
            let known = match is_scope9 {
                true => of_scope9(field.id),
                false => Value::of_number(field.enterprise, field.id),
            };
            // Of elements that are repeated the first is that of the outer header (RFC 7012, 4.1 and RFC 7011, 8): all of
            // them together are one packet, the others are of what it carries.
            let known = known.filter(|_| seen.insert((is_scope9, field.enterprise, field.id)));
            let is_system = matches!(known, Some((Value::Foreign(Foreign::System), _)));
            // A field of no octets costs a datagram nothing, so it must cost us nothing.
            if is_system || field.len > 0 && (is_variable || known.is_some()) {
                steps.push(Step { at, len: field.len, field: known });
            }
            at = at.saturating_add(field.len);
        }
        let has_plan = scopes == 0 && !is_variable && record_len >= RECORD_LEN_MIN;
        let plan = if has_plan { plan(&steps) } else { None };
        Some(Template { raw, scopes, record_len, is_variable, steps: steps.into(), plan })
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        TEMPLATE_LEN + FIELD_LEN * self.raw.len()
    }

    pub(crate) fn is_options(&self) -> bool {
        self.scopes > 0
    }

    /// Passes the fields of the next record to `tell`, and takes its octets; `None` if there is no whole record.
    #[inline]
    pub(crate) fn record<'a>(
        &self,
        bytes: &mut ByteReader<'a>,
        mut tell: impl FnMut(Value, bool, &'a [u8]),
    ) -> Option<()> {
        if !self.is_variable {
            let record = bytes.take(self.record_len)?;
            for step in &self.steps {
                let value = record.get(usize::from(step.at)..)?.get(..usize::from(step.len))?;
                if let Some((field, is_reverse)) = step.field {
                    tell(field, is_reverse, value);
                }
            }
            return Some(());
        }
        for step in &self.steps {
            let len = match step.len {
                VARIABLE => match bytes.u8()? {
                    u8::MAX => bytes.u16()?.into(),
                    len => len.into(),
                },
                len => usize::from(len),
            };
            let value = bytes.take(len)?;
            if let Some((field, is_reverse)) = step.field {
                tell(field, is_reverse, value);
            }
        }
        Some(())
    }
}

/// The meaning of a scope of version 9 (RFC 3954, 6.1), whose types have numbers of their own.
fn of_scope9(kind: u16) -> Option<(Value, bool)> {
    match kind {
        1 => Some((Value::Foreign(Foreign::System), false)),
        2 => Some((Value::Ingress, false)),
        5 => Some((Value::Foreign(Foreign::Template), false)),
        _ => None,
    }
}

/// The plan for records of these steps, whose lengths are fixed.
fn plan(steps: &[Step]) -> Option<Plan> {
    let placed = steps.iter().filter_map(|step| {
        let (field, is_reverse) = step.field?;
        Some(PlacedField { field, is_reverse, at: step.at.into(), len: step.len.into() })
    });
    Plan::of(&placed.collect::<Vec<_>>())
}

/// The next template of a set. `None` for one that is cut short or has no meaning: the set is not read further.
pub(crate) fn next(bytes: &mut ByteReader<'_>, form: Form, is_options: bool) -> Option<TemplateChange> {
    let id = bytes.u16()?;
    let (count, scopes) = match (form, is_options) {
        (_, false) => (bytes.u16()?, 0),
        (Form::V9, true) => {
            // Lengths in octets, four a field.
            let (scopes, options) = (bytes.u16()?, bytes.u16()?);
            (scopes.checked_add(options)? / 4, scopes / 4)
        }
        (Form::Ipfix, true) => match bytes.u16()? {
            0 => (0, 0),
            count => (count, bytes.u16()?),
        },
    };
    if count == 0 {
        return (form == Form::Ipfix).then_some(TemplateChange::Withdrawal);
    }
    let is_told_right = id >= LEAST_ID && (is_options == (scopes > 0));
    let mut raw = Vec::with_capacity(usize::from(count).min(FIELDS_MAX));
    for _ in 0..count {
        let field = raw_field(bytes, form)?;
        if raw.len() < FIELDS_MAX {
            raw.push(field);
        }
    }
    if usize::from(count) > FIELDS_MAX {
        return Some(TemplateChange::TooLong);
    }
    let template = Template::new(raw.into(), scopes, form).filter(|_| is_told_right)?;
    Some(TemplateChange::Template(id, template))
}

fn raw_field(bytes: &mut ByteReader<'_>, form: Form) -> Option<RawField> {
    let (id, len) = (bytes.u16()?, bytes.u16()?);
    if form == Form::Ipfix && id & ENTERPRISE_BIT != 0 {
        return Some(RawField { enterprise: bytes.u32()?, id: id & !ENTERPRISE_BIT, len });
    }
    Some(RawField { enterprise: 0, id, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields_of(template: &Template, record: &[u8]) -> Option<Vec<(Value, Vec<u8>)>> {
        let mut told = Vec::new();
        template.record(&mut ByteReader(record), |field, _, value| told.push((field, value.to_vec())))?;
        Some(told)
    }

    fn told(octets: &[u8], form: Form, is_options: bool) -> Option<(u16, Template)> {
        match next(&mut ByteReader(octets), form, is_options)? {
            TemplateChange::Template(id, template) => Some((id, template)),
            TemplateChange::Withdrawal | TemplateChange::TooLong => None,
        }
    }

    #[test]
    fn fields_lie_where_the_template_says() {
        // protocolIdentifier 1, an unknown one of 3, octetDeltaCount 2.
        let (id, fixed) =
            told(&[1, 0, 0, 3, 0, 4, 0, 1, 127, 255, 0, 3, 0, 1, 0, 2], Form::Ipfix, false).unwrap();
        assert_eq!((id, fixed.record_len, fixed.is_options()), (256, 6, false));
        let seen = fields_of(&fixed, &[6, 9, 9, 9, 1, 2]).unwrap();
        assert_eq!(seen, [(Value::Protocol, vec![6]), (Value::Octets, vec![1, 2])]);
        assert_eq!(fields_of(&fixed, &[6, 9, 9, 9, 1]), None);
        let (_, varied) = told(&[1, 0, 0, 2, 0, 96, 255, 255, 0, 4, 0, 1], Form::Ipfix, false).unwrap();
        assert_eq!(fields_of(&varied, &[2, b'o', b'k', 17]).unwrap(), [(Value::Protocol, vec![17])]);
        assert_eq!(fields_of(&varied, &[255, 0, 1, 7, 17]).unwrap(), [(Value::Protocol, vec![17])]);
        assert_eq!(fields_of(&varied, &[255, 255, 255, 7, 17]), None);
    }

    #[test]
    fn scopes_of_version_9_have_their_own_numbers() {
        // Scope 2, interface; option 34.
        let (_, options) = told(&[1, 1, 0, 4, 0, 4, 0, 2, 0, 4, 0, 34, 0, 4], Form::V9, true).unwrap();
        let seen = fields_of(&options, &[0, 0, 0, 3, 0, 0, 0, 100]).unwrap();
        assert_eq!(seen[0], (Value::Ingress, vec![0, 0, 0, 3]));
        assert_eq!(seen[1], (Value::SamplingInterval, vec![0, 0, 0, 100]));
    }

    #[test]
    fn templates_without_octets_are_refused() {
        assert!(told(&[1, 0, 0, 1, 0, 4, 0, 0], Form::Ipfix, false).is_none());
        assert!(told(&[0, 9, 0, 1, 0, 4, 0, 1], Form::Ipfix, false).is_none(), "ids below 256 are sets");
        assert!(told(&[1, 0, 0, 9, 0, 4, 0, 1], Form::V9, false).is_none(), "cut short");
        assert!(matches!(
            next(&mut ByteReader(&[1, 0, 0, 0]), Form::Ipfix, false),
            Some(TemplateChange::Withdrawal)
        ));
    }
}
