//! The environment of functions of a script: tables, recorders, triggers, and their events.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::budget::CallBudget;
use super::{Trigger, TriggerKind};
use crate::clock::ClockStep;
use crate::key::Subject;
use crate::recorder::{RecordedPeriod, Recorder};
use crate::tables::ScriptTable;

/// Events and lines of one call.
pub(super) const TOLD_MAX: usize = 100;
/// Bytes of all events, and of all lines, of one call.
pub(super) const TOLD_LEN_MAX: usize = 65_536;
/// Bytes that tables and recorders of a script hold together, about.
const KEPT_MAX: usize = 256 << 20;

/// An event that a script reported.
#[derive(Clone, Debug)]
pub(super) struct ScriptEvent {
    pub(super) message: String,
    pub(super) about: Map<String, Value>,
    /// The packet, flow or addresses that it is about.
    pub(super) subject: Option<Subject>,
}

/// The environment of functions of a script.
#[derive(Debug)]
pub(super) struct World {
    pub(super) script: String,
    pub(super) budget: Arc<CallBudget>,
    /// Whether triggers, tables and recorders are fixed.
    pub(super) is_loaded: bool,
    pub(super) triggers: Vec<Trigger>,
    pub(super) tables: BTreeMap<String, ScriptTable>,
    pub(super) recorders: BTreeMap<String, Recorder>,
    pub(super) now_ns: i64,
    pub(super) subject: Option<Subject>,
    pub(super) told: Vec<ScriptEvent>,
    /// Bytes of `told`.
    pub(super) told_len: usize,
    pub(super) periods: Vec<RecordedPeriod>,
    pub(super) printed: Vec<String>,
    /// Bytes of `printed`.
    pub(super) printed_len: usize,
    /// Events beyond the most of one call.
    pub(super) not_told: u64,
}

impl World {
    pub(super) fn new(script: String, budget: Arc<CallBudget>) -> World {
        World {
            script,
            budget,
            is_loaded: false,
            triggers: Vec::new(),
            tables: BTreeMap::new(),
            recorders: BTreeMap::new(),
            now_ns: 0,
            subject: None,
            told: Vec::new(),
            told_len: 0,
            periods: Vec::new(),
            printed: Vec::new(),
            printed_len: 0,
            not_told: 0,
        }
    }

    /// Bytes for which tables and recorders have room.
    pub(super) fn room(&self) -> usize {
        let tables: usize = self.tables.values().map(ScriptTable::len_kept).sum();
        let recorders: usize = self.recorders.values().map(Recorder::len_kept).sum();
        KEPT_MAX.saturating_sub(tables + recorders)
    }

    pub(super) fn take(&mut self) -> (Vec<ScriptEvent>, Vec<RecordedPeriod>, Vec<String>) {
        (self.told_len, self.printed_len) = (0, 0);
        (std::mem::take(&mut self.told), std::mem::take(&mut self.periods), std::mem::take(&mut self.printed))
    }

    /// Whether a timer is due; the next time is then behind `now_ns`.
    pub(super) fn is_due(&mut self, trigger: usize, every_ns: i64, now_ns: i64) -> bool {
        let Some(trigger) = self.triggers.get_mut(trigger) else { return false };
        debug_assert!(matches!(trigger.kind, TriggerKind::Timer(_)), "only timers have a time");
        let is_due = trigger.due_ns != 0 && trigger.due_ns <= now_ns;
        if is_due || trigger.due_ns == 0 {
            trigger.due_ns = next_time(every_ns, now_ns);
        }
        is_due
    }

    pub(super) fn has_records(&self) -> bool {
        !self.recorders.is_empty()
    }

    pub(super) fn advance(&mut self, now_ns: i64) -> Vec<RecordedPeriod> {
        self.recorders.values_mut().filter_map(|recorder| recorder.advance(now_ns)).collect()
    }

    /// The clock was set back: keys are as old as before, timers wait for their next time. Periods that end by it.
    pub(super) fn set_back(&mut self, step: ClockStep) -> Vec<RecordedPeriod> {
        self.tables.values_mut().for_each(|table| table.set_back(step));
        for trigger in &mut self.triggers {
            if let TriggerKind::Timer(every_ns) = trigger.kind {
                trigger.due_ns = next_time(every_ns, step.to_ns);
            }
        }
        self.recorders.values_mut().filter_map(|recorder| recorder.set_back(step.to_ns)).collect()
    }

    pub(super) fn finish(&mut self) -> Vec<RecordedPeriod> {
        self.recorders.values_mut().filter_map(Recorder::take).collect()
    }

    /// Keys in all tables, and refusals of tables or of one call.
    pub(super) fn counts(&self) -> (u64, u64) {
        let all = self.tables.values().map(ScriptTable::counts);
        all.fold((0, self.not_told), |(keys, refused), (more, too)| (keys + more as u64, refused + too))
    }
}

/// The first multiple of a time behind `now_ns`.
fn next_time(every_ns: i64, now_ns: i64) -> i64 {
    now_ns.div_euclid(every_ns).saturating_add(1).saturating_mul(every_ns)
}
