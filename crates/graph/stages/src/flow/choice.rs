//! Flows that are handed on: those with enough packets and bytes, by their directions.

use tapline_flow::Flow;
use tapline_graph::catalog::{Arguments, Parameter, ParameterType};
use tapline_packet::numbers::ip_protocol::{TCP, UDP};
use tapline_source::SkipCause;
use tapline_syntax::units;

pub(super) const MIN_PACKETS: Parameter =
    Parameter::new("min_packets", ParameterType::Number(1, 1_000_000), "1")
        .means("flows with fewer packets, of both directions, are counted and not handed on");
pub(super) const MIN_BYTES: Parameter = Parameter::new("min_bytes", ParameterType::Text, "0")
    .means("flows with fewer bytes, of both directions, are counted and not handed on: TCP[:UDP[:OTHERS]], as in \"500:100\"");
pub(super) const DIRECTIONS: Parameter =
    Parameter::new("directions", ParameterType::Choice(&["any", "both", "one"]), "any").means(
        "flows to hand on: any, those with packets of both directions, or those of one; others are counted",
    );

/// Limits of the flows that are handed on, and the flows that are not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Choice {
    packets: u64,
    /// Least bytes of flows of TCP, of UDP, and of other protocols.
    bytes: [u64; 3],
    /// Whether both directions have packets, where that matters.
    is_both_ways: Option<bool>,
    pub(super) small_flows: u64,
    pub(super) other_flows: u64,
    left_out_packets: u64,
}

impl Choice {
    pub(super) fn of(arguments: &Arguments) -> Result<Choice, String> {
        let is_both_ways = match arguments.text("directions") {
            "both" => Some(true),
            "one" => Some(false),
            _ => None,
        };
        let (packets, bytes) = (arguments.number("min_packets"), limits(arguments.text("min_bytes"))?);
        Ok(Choice { packets, bytes, is_both_ways, ..Choice::default() })
    }

    /// The cause of packets that are not handed on.
    pub(super) fn cause(&self) -> SkipCause {
        match (self.is_both_ways, self.bytes) {
            (None, [0, 0, 0]) => SkipCause::SmallFlow,
            _ => SkipCause::LeftOutFlow,
        }
    }

    /// Whether flows are chosen by their directions.
    pub(super) fn is_by_directions(&self) -> bool {
        self.is_both_ways.is_some()
    }

    /// Takes flows out that are not handed on; the packets of these.
    pub(super) fn select(&mut self, flows: &mut Vec<Flow>) -> u64 {
        if self.packets <= 1 && self.bytes == [0; 3] && self.is_both_ways.is_none() {
            return 0;
        }
        let before = self.left_out_packets;
        flows.retain(|flow| {
            let of_protocol = match flow.protocol {
                TCP => 0,
                UDP => 1,
                _ => 2,
            };
            let is_small = flow.packets() < self.packets || flow.bytes() < self.bytes[of_protocol];
            let both = flow.endpoints.iter().all(|side| side.packets > 0);
            let is_other = self.is_both_ways.is_some_and(|wanted| both != wanted);
            self.small_flows += u64::from(is_small);
            self.other_flows += u64::from(is_other && !is_small);
            if is_small || is_other {
                self.left_out_packets += flow.packets();
            }
            !is_small && !is_other
        });
        self.left_out_packets - before
    }

    /// Adds the counts of another worker.
    pub(super) fn merge(&mut self, other: &Choice) {
        self.small_flows += other.small_flows;
        self.other_flows += other.other_flows;
        self.left_out_packets += other.left_out_packets;
    }
}

/// `TCP[:UDP[:OTHERS]]`: limits that are left out are 0.
fn limits(text: &str) -> Result<[u64; 3], String> {
    let mut all = [0; 3];
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() > all.len() {
        return Err(format!("min_bytes: `{text}` has more than three limits: TCP:UDP:OTHERS"));
    }
    for (limit, part) in all.iter_mut().zip(parts) {
        *limit = units::size(part.trim())
            .map_err(|_| format!("min_bytes: `{part}` is not a number of bytes: 500, or 500:100:0"))?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_by_protocol() {
        assert_eq!(limits("0"), Ok([0, 0, 0]));
        assert_eq!(limits("500"), Ok([500, 0, 0]));
        assert_eq!(limits("500:1k:7"), Ok([500, 1000, 7]));
        for wrong in ["", "x", "1:", "1:2:3:4", "-1"] {
            assert!(limits(wrong).is_err(), "{wrong}");
        }
    }
}
