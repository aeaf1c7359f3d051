//! Rules as text, which parses to the same rules.

use std::fmt;
use std::net::SocketAddr;

use tapline_packet::FiveTuple;
use tapline_packet::numbers::ip_protocol::has_ports;

use crate::action::{Actions, Outputs, Share};
use crate::exact::ExactRule;
use crate::parse::{LEARNED, ListRule, NAMES, RuleFile};

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.chosen, self.of)
    }
}

impl RuleFile {
    /// An exact rule without its actions.
    pub fn shown(&self, number: u32) -> String {
        let ExactRule { tuple, is_both, .. } = self.exact.rule(number);
        let FiveTuple { src, dst, protocol, src_port, dst_port } = tuple;
        let end = |address, port| match has_ports(protocol) {
            true => SocketAddr::new(address, port).to_string(),
            false => address.to_string(),
        };
        let name = NAMES.iter().find(|(_, known)| *known == protocol);
        let name = name.map_or_else(|| protocol.to_string(), |(name, _)| (*name).to_owned());
        let arrow = if is_both { "<->" } else { "->" };
        format!("flow {name} {} {arrow} {}", end(src, src_port), end(dst, dst_port))
    }

    /// The actions of an exact rule.
    pub fn actions_of(&self, number: u32) -> &Actions {
        &self.actions[usize::from(self.exact.actions(number))]
    }

    /// Actions as they are written.
    pub fn shown_actions(&self, actions: &Actions) -> String {
        let Actions { outputs, sample, goes_on, learns, idle_s } = *actions;
        let mut words: Vec<String> = sample.iter().map(|share| format!("sample {share}")).collect();
        words.extend(outputs.has(0).then(|| "pass".to_owned()));
        let named = self.outputs.iter().enumerate().filter(|(number, _)| outputs.has(number + 1));
        words.extend(named.map(|(_, name)| format!("to {name}")));
        match (outputs == Outputs::default(), goes_on) {
            (true, true) => words.push("count".to_owned()),
            (true, false) => words.push("drop".to_owned()),
            (false, true) => words.push("go on".to_owned()),
            (false, false) => {}
        }
        words.extend(learns.then(|| "learn".to_owned()));
        words.extend((idle_s > 0).then(|| format!("idle {idle_s}s")));
        words.join(", ")
    }
}

impl fmt::Display for RuleFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.filter.is_empty() {
            writeln!(f, "filter {}", self.filter)?;
        }
        if self.idle_s > 0 {
            writeln!(f, "idle {}s", self.idle_s)?;
        }
        if self.learn_max != LEARNED {
            writeln!(f, "learn {}", self.learn_max)?;
        }
        for number in self.exact.numbers() {
            writeln!(f, "{} => {}", self.shown(number), self.shown_actions(self.actions_of(number)))?;
        }
        for ListRule { name, filter, actions, .. } in &self.list {
            let gap = if name.is_empty() { "" } else { " " };
            writeln!(f, "rule{gap}{name}: {filter} => {}", self.shown_actions(actions))?;
        }
        if let Some(share) = self.sample {
            writeln!(f, "sample {share}")?;
        }
        writeln!(f, "default {}", self.shown_actions(&self.default))
    }
}
