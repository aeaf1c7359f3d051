//! Scripts that decide about packets: one function is called with each packet.
//!
//! ```text
//! fn verdict(p) { if p.len > 1000 { false } else if p.dport == 53 { 2 } else { true } }
//!     false: the packet is dropped; true: it passes; 0 to 255: it passes, with this label
//! ```
//!
//! Tables and `print` work as in scripts of rules; triggers, recorders and `tell` do not: a verdict makes no event.

use tapline_packet::headers::Headers;
use tapline_packet::{LinkType, Packet};

use super::budget::CallBudget;
use super::world::World;
use super::{Script, lock, packet_map};
use crate::key::Subject;
use crate::rules::ScriptEntry;
use crate::verdict::{Verdict, VerdictCounts};

/// Lines of a script and of its faults that wait to be read.
const LINES_MAX: usize = 64;

/// A script with a function that decides about packets.
pub struct VerdictScript {
    script: Script,
    function: String,
    lines: Vec<String>,
    counts: VerdictCounts,
}

/// Checks what a script of verdicts has made when it was loaded.
pub(super) fn check(world: &World, function: &str, has_function: bool) -> Result<(), String> {
    if !world.triggers.is_empty() || world.has_records() {
        return Err(
            "it decides about packets: triggers and recorders are for the rules of tapline watch".to_owned()
        );
    }
    match has_function {
        true => Ok(()),
        false => Err(format!("there is no fn {function} with one parameter, the packet")),
    }
}

impl VerdictScript {
    /// Loads a script of which `function` decides. A call does `operations` at most.
    ///
    /// # Errors
    /// The script has a mistake, has no such function, or makes triggers or recorders.
    pub fn load(file: &str, text: String, function: &str, operations: u64) -> Result<VerdictScript, String> {
        let entry = ScriptEntry {
            name: file.to_owned(),
            line: 1,
            file: file.to_owned(),
            limit: Default::default(),
            actions: Default::default(),
            is_off: false,
        };
        let budget = CallBudget::new(operations);
        let script = Script::load_for(&entry, 0, text, operations, budget, Some(function))?;
        let (lines, counts) = (Vec::new(), VerdictCounts::default());
        Ok(VerdictScript { script, function: function.to_owned(), lines, counts })
    }

    /// Calls the function with a packet; [`Verdict::Failed`] if that failed, or gave something else.
    pub fn decide(&mut self, link_type: LinkType, packet: Packet<'_>) -> Verdict {
        let subject = Subject::of_packet(&Headers::parse(link_type, packet), packet);
        {
            let mut world = lock(&self.script.world);
            world.now_ns = packet.meta.timestamp.as_nanos();
            world.subject = Some(subject);
        }
        let argument = packet_map(link_type, packet, &subject);
        let verdict = if self.script.is_late() { None } else { self.call(argument) };
        let verdict = verdict.unwrap_or(Verdict::Failed);
        self.counts.add(verdict);
        self.take_printed();
        verdict
    }

    fn call(&mut self, argument: rhai::Dynamic) -> Option<Verdict> {
        let mut faults = Vec::new();
        let value = self.script.call_with(&self.function, (argument,), &mut faults);
        faults.into_iter().for_each(|fault| self.note(fault));
        let value = value?;
        let number = value.as_int().ok().and_then(|number| u8::try_from(number).ok());
        let verdict = match value.as_bool() {
            Ok(true) => Some(Verdict::Pass),
            Ok(false) => Some(Verdict::Drop),
            Err(_) => number.map(Verdict::Label),
        };
        if verdict.is_none() && self.counts.failed < super::FAULTS_TOLD {
            let (file, function) = (&self.script.entry.file, &self.function);
            let kind = value.type_name();
            self.note(format!(
                "{file}: {function} gave {kind}; a verdict is true, false, or a number from 0 to 255"
            ));
        }
        verdict
    }

    fn take_printed(&mut self) {
        let (told, _, printed) = lock(&self.script.world).take();
        self.counts.not_told += told.len() as u64;
        printed.into_iter().for_each(|line| self.note(line));
    }

    fn note(&mut self, line: String) {
        match self.lines.len() < LINES_MAX {
            true => self.lines.push(line),
            false => self.counts.not_told += 1,
        }
    }

    /// Lines that the script printed, and its first faults.
    pub fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    /// The counts so far.
    pub fn counts(&self) -> VerdictCounts {
        self.counts
    }
}
