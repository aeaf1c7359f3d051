//! Rules for flows that packets taught: exact rules that an action `learn` adds while packets flow.
//!
//! ```text
//! packet --no exact rule--> a rule with `learn` matches --> its flow, both directions, with the rule's other actions
//! next packet of the flow: found here, as an exact rule of the file
//! ```
//!
//! Each worker has a table of its own, so nothing is locked. Its memory is taken once, for as many flows as the file
//! allows; where it is full, flows that were idle for too long make room, once a second.

use tapline_packet::FiveTuple;

use crate::action::Actions;
use crate::exact::{ExactRule, ExactTable, Probes};
use crate::set::{Decision, RuleSet};

/// The number of the default among the rules that flows are learned from.
const DEFAULT: u16 = u16::MAX;

/// The rule that a flow is learned from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Teacher {
    /// The rule of the list with this number.
    List(usize),
    /// The default.
    Default,
}

/// The flows that a worker has learned.
#[derive(Debug, Default)]
pub struct Learned {
    table: ExactTable,
    /// The most flows.
    room: usize,
    /// The second of the last look for idle flows.
    swept_s: u32,
}

impl Learned {
    /// An empty table, with memory for the flows that the file allows.
    pub fn of(rules: &RuleSet) -> Learned {
        let file = rules.file();
        let room = if file.learns() { file.learn_max } else { 0 };
        let mut table = ExactTable::default();
        table.reserve(room);
        Learned { table, room, swept_s: 0 }
    }

    /// Whether no flow was learned.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Looks up the flows of a batch. `packet` gives the bytes and the second of a packet, and its decision.
    pub fn ask(
        &self,
        rules: &RuleSet,
        probes: &mut Probes,
        mut obey: impl FnMut(usize) -> (u64, u32),
        decisions: &mut [Decision],
    ) {
        self.table.find_all(probes, |index, number| {
            let Some(number) = number else { return };
            let (bytes, time_s) = obey(index);
            let actions = self.actions(rules, number);
            if self.table.meet(number, time_s, rules.file().idle_of(actions), 0) {
                let place = self.table.count(number, bytes, false);
                rules.obey_learned(number, actions, (place, bytes), &mut decisions[index]);
            }
        });
    }

    fn actions<'r>(&self, rules: &'r RuleSet, number: u32) -> &'r Actions {
        match self.table.actions(number) {
            DEFAULT => &rules.file().default,
            number => &rules.file().list[usize::from(number)].actions,
        }
    }

    /// Adds a rule for both directions of a flow. Where there is no room, the refusal is counted.
    pub fn learn(&mut self, rules: &RuleSet, tuple: FiveTuple, teacher: Teacher, time_s: u32) {
        let actions = match teacher {
            Teacher::List(number) => number as u16,
            Teacher::Default => DEFAULT,
        };
        if self.table.len() >= self.room {
            self.sweep(rules, time_s);
        }
        let rule = ExactRule { tuple, is_both: true, actions };
        if self.table.len() >= self.room && self.table.number_of(&tuple).is_none() {
            rules.refuse_flow();
            return;
        }
        let is_new = match self.table.insert(&rule) {
            Ok(()) => true,
            // It was idle for too long, and begins again; or another packet of the batch taught it.
            Err(number) => {
                let is_renewed = self.table.renew(number, actions);
                rules.note_forgotten(u64::from(is_renewed));
                is_renewed
            }
        };
        if let Some(number) = self.table.number_of(&tuple).filter(|_| is_new) {
            self.table.meet(number, time_s, 0, 0);
            rules.note_learned(1);
        }
    }

    /// Forgets flows that were idle for too long.
    fn sweep(&mut self, rules: &RuleSet, time_s: u32) {
        if time_s <= self.swept_s {
            return;
        }
        self.swept_s = time_s;
        let before = self.table.len();
        let file = rules.file();
        self.table.retain(|actions, last_s| {
            let actions = match actions {
                DEFAULT => &file.default,
                number => &file.list[usize::from(number)].actions,
            };
            let idle_s = file.idle_of(actions);
            last_s != ExactTable::PURGED && (idle_s == 0 || time_s <= last_s.saturating_add(idle_s))
        });
        rules.note_forgotten((before - self.table.len()) as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::exact::Flow;
    use crate::parse::parse;

    fn tuple(host: u8) -> FiveTuple {
        FiveTuple {
            src: IpAddr::from([10, 0, 0, host]),
            dst: IpAddr::from([10, 0, 1, 1]),
            protocol: 6,
            src_port: 4000,
            dst_port: 80,
        }
    }

    fn rules(text: &str) -> RuleSet {
        RuleSet::new(
            parse(text, &["ids".to_owned()]).unwrap_or_else(|error| panic!("{}", error.render(text))),
            false,
        )
    }

    /// Outputs of the packet of a flow in a second; `None` if its flow is not known.
    fn asked(learned: &Learned, rules: &RuleSet, tuple: &FiveTuple, time_s: u32) -> Option<u64> {
        let mut probes = Probes::default();
        probes.add(0, Flow::of(tuple).expect("one version"));
        let mut decisions = [Decision::default()];
        learned.ask(rules, &mut probes, |_| (100, time_s), &mut decisions);
        decisions[0].is_final.then_some(decisions[0].outputs.0)
    }

    #[test]
    fn a_flow_has_the_actions_of_its_teacher() {
        let rules = rules("rule a: tcp port 80 => to ids, learn\ndefault drop, learn");
        let mut learned = Learned::of(&rules);
        learned.learn(&rules, tuple(1), Teacher::List(0), 10);
        learned.learn(&rules, tuple(2), Teacher::Default, 10);
        learned.learn(&rules, tuple(2), Teacher::Default, 10);
        assert_eq!(asked(&learned, &rules, &tuple(1), 11), Some(2));
        assert_eq!(asked(&learned, &rules, &tuple(1).reversed(), 12), Some(2));
        assert_eq!(asked(&learned, &rules, &tuple(2), 12), Some(0));
        assert_eq!(asked(&learned, &rules, &tuple(3), 12), None);
        let flows = rules.report().learned;
        assert_eq!((flows.flows, flows.forgotten, flows.refused), (2, 0, 0));
        assert_eq!((flows.counts.packets, flows.counts.bytes), (3, 300));
    }

    #[test]
    fn the_bound_is_counted_and_idle_flows_make_room() {
        let rules = rules("learn 2\nidle 10s\nrule a: tcp => drop, learn");
        let mut learned = Learned::of(&rules);
        for host in 1..=3 {
            learned.learn(&rules, tuple(host), Teacher::List(0), 100);
        }
        assert_eq!(rules.report().learned.refused, 1);
        assert_eq!(asked(&learned, &rules, &tuple(1), 108), Some(0));
        assert_eq!(asked(&learned, &rules, &tuple(3), 108), None);
        // The second flow was idle for more than 10 s.
        learned.learn(&rules, tuple(3), Teacher::List(0), 111);
        assert_eq!(asked(&learned, &rules, &tuple(3), 111), Some(0));
        assert_eq!(asked(&learned, &rules, &tuple(1), 111), Some(0));
        let flows = rules.report().learned;
        assert_eq!((flows.flows, flows.forgotten, flows.refused), (2, 1, 1));
        // An idle flow that comes again is learned again.
        assert_eq!(asked(&learned, &rules, &tuple(1), 122), None);
        learned.learn(&rules, tuple(1), Teacher::List(0), 122);
        assert_eq!(asked(&learned, &rules, &tuple(1), 122), Some(0));
    }

    #[test]
    fn room_is_made_after_a_stamp_of_the_future() {
        let rules = rules("learn 2\nidle 10s\nrule a: tcp => drop, learn");
        let mut learned = Learned::of(&rules);
        for (host, stamp_s) in [(1, 100), (2, 100), (3, 100 + 4000 * 86_400), (4, 101)] {
            learned.learn(&rules, tuple(host), Teacher::List(0), rules.see(Some(stamp_s)));
        }
        assert_eq!(rules.report().learned.refused, 2);
        rules.see(Some(106));
        learned.learn(&rules, tuple(5), Teacher::List(0), rules.see(Some(112)));
        let flows = rules.report().learned;
        assert_eq!((flows.flows, flows.forgotten, flows.refused), (1, 2, 2));
    }
}
