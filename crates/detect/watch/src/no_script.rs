//! In place of scripts, in builds without them.

use std::convert::Infallible;

use tapline_flow::Flow;
use tapline_packet::{LinkType, Packet};

use crate::certificates::Certificate;
use crate::clock::ClockStep;
use crate::filters::Asking;
use crate::key::Subject;
use crate::outbox::Outbox;
use crate::recorder::RecordedPeriod;
use crate::rules::ScriptEntry;
use crate::state::RuleCounts;
use crate::verdict::{Verdict, VerdictCounts};

/// The most bytes of a script.
pub(crate) const SCRIPT_MAX: u64 = 1 << 20;

/// Bytes of stack of a thread that calls scripts.
pub const STACK_LEN: usize = 2 << 20;

/// Kinds of triggers: there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriggerKind {
    Certificate,
}

/// The arguments of functions of a script.
pub(crate) struct Argument;

/// A script, of which there is none.
pub(crate) struct Script {
    pub(crate) number: usize,
    pub(crate) kinds: Vec<TriggerKind>,
    never: Infallible,
}

impl Script {
    pub(crate) fn load(entry: &ScriptEntry, _: usize, _: String, _: u64) -> Result<Script, String> {
        Err(format!("`{}`: this build has no scripts: build with --features scripts", entry.name))
    }

    pub(crate) fn is_same(&self, _: &Script) -> bool {
        match self.never {}
    }

    pub(crate) fn askings(&self, _: usize) -> Vec<Asking> {
        match self.never {}
    }

    pub(crate) fn is_active(&self) -> bool {
        match self.never {}
    }

    pub(crate) fn call(
        &mut self,
        _: usize,
        _: i64,
        _: Option<&Subject>,
        _: Option<Argument>,
        _: &mut Outbox,
    ) {
        match self.never {}
    }

    pub(crate) fn advance(&mut self, _: i64, _: &mut Outbox) {
        match self.never {}
    }

    pub(crate) fn set_back(&mut self, _: ClockStep, _: &mut Outbox) {
        match self.never {}
    }

    pub(crate) fn finish(&mut self) -> Vec<RecordedPeriod> {
        match self.never {}
    }

    pub(crate) fn counts(&self) -> RuleCounts {
        match self.never {}
    }
}

/// A script with a function that decides about packets, of which there is none.
pub struct VerdictScript {
    never: Infallible,
}

impl VerdictScript {
    /// Fails: this build has no scripts.
    ///
    /// # Errors
    /// Always.
    pub fn load(file: &str, _: String, _: &str, _: u64) -> Result<VerdictScript, String> {
        Err(format!("`{file}`: this build has no scripts: build with --features scripts"))
    }

    /// The verdict about a packet.
    pub fn decide(&mut self, _: LinkType, _: Packet<'_>) -> Verdict {
        match self.never {}
    }

    /// Lines that the script printed, and its first faults.
    pub fn take_lines(&mut self) -> Vec<String> {
        match self.never {}
    }

    /// The counts so far.
    pub fn counts(&self) -> VerdictCounts {
        match self.never {}
    }
}

pub(crate) fn packet_map(_: LinkType, _: Packet<'_>, _: &Subject) -> Argument {
    Argument
}

pub(crate) fn flow_map(_: &Flow, _: &Subject) -> Argument {
    Argument
}

pub(crate) fn certificate_map(_: &Certificate) -> Argument {
    Argument
}
