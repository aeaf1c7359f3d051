//! Scripts in Rhai: triggers call functions, which keep values by key, report events and hand values to recorders.
//!
//! ```text
//! loaded:   on_packet("tcp port 22", "seen"); on_flow("ended", "udp", "gone"); on_timer("60s", "each_minute")
//! trigger:  fn seen(p) { if add("tries", p.src, 1) > 5 { tell("...") } }
//!             operations, depth, sizes, stack, memory and time are limited; a call that fails is counted, and told the first times
//! ```
//!
//! A script sees no clock, no file and no random number, so its results on a file are those of the live run.

mod budget;
mod convert;
mod functions;
mod verdict;
mod world;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rhai::{AST, CallFnOptions, Dynamic, Engine, EvalAltResult, FuncArgs, OptimizationLevel, Scope};

use crate::clock::ClockStep;
use crate::event::{Event, EventKind};
use crate::filters::{Asking, RuleFilterSet};
use crate::key::Subject;
use crate::limit::LimitState;
use crate::outbox::Outbox;
use crate::recorder::RecordedPeriod;
use crate::rules::ScriptEntry;
use crate::state::RuleCounts;
use budget::CallBudget;
use world::World;

pub(crate) use convert::{certificate_map, flow_map, packet_map};
pub use verdict::VerdictScript;

/// The most bytes of a script.
pub(crate) const SCRIPT_MAX: u64 = 1 << 20;
/// Number of reported faults of a script; all are counted.
const FAULTS_TOLD: u64 = 3;
/// Calls that run out of time, after which a script is called no more: packets would wait for each.
const LATE_MAX: u64 = 10;
/// Calls of a script's functions within each other.
const CALLS_DEEP: usize = 32;
/// Bytes of stack of a thread that calls scripts. Rhai makes, looks at and drops values within values by calls within
/// calls, and these may be as deep as arrays and maps have elements together.
pub const STACK_LEN: usize = 64 << 20;
/// Bytes of a text, elements of an array or map.
const TEXT_MAX: usize = 65_536;
const ELEMENTS_MAX: usize = 10_000;

/// When a trigger calls its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriggerKind {
    /// A packet that the filter accepts.
    Packet,
    /// A flow, at its first packet.
    FlowBegun,
    /// A flow that has ended.
    FlowEnded,
    /// The certificate of a TLS server, up to version 1.2.
    Certificate,
    /// At multiples of this time since 1970, in nanoseconds.
    Timer(i64),
}

/// A trigger of a script.
#[derive(Clone, Debug)]
pub(crate) struct Trigger {
    pub(crate) kind: TriggerKind,
    pub(crate) filter: String,
    pub(crate) function: String,
    pub(crate) is_on: bool,
    /// The next time of a timer.
    pub(crate) due_ns: i64,
}

impl Trigger {
    fn asked(&self) -> Option<RuleFilterSet> {
        match self.kind {
            TriggerKind::Packet | TriggerKind::Certificate => Some(RuleFilterSet::Packets),
            TriggerKind::FlowBegun => Some(RuleFilterSet::Begun),
            TriggerKind::FlowEnded => Some(RuleFilterSet::Ended),
            TriggerKind::Timer(_) => None,
        }
    }
}

/// A script, ready to be called.
pub(crate) struct Script {
    pub(crate) entry: ScriptEntry,
    /// Number of the script: behind the rules.
    pub(crate) number: usize,
    text: String,
    operations: u64,
    engine: Engine,
    ast: AST,
    world: Arc<Mutex<World>>,
    budget: Arc<CallBudget>,
    /// Kinds of its triggers, which stay as they are once it is loaded.
    pub(crate) kinds: Vec<TriggerKind>,
    limit: LimitState,
    calls: u64,
    faults: u64,
    /// Calls that ran out of time.
    late: u64,
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Script {
    /// Loads a script: runs its statements, which make triggers, tables and recorders.
    pub(crate) fn load(
        entry: &ScriptEntry,
        number: usize,
        text: String,
        operations: u64,
    ) -> Result<Script, String> {
        Script::load_for(entry, number, text, operations, CallBudget::new(operations), None)
    }

    /// Loads a script as [`load`](Self::load) does; with `verdict` one that has no triggers, and this function.
    fn load_for(
        entry: &ScriptEntry,
        number: usize,
        text: String,
        operations: u64,
        budget: CallBudget,
        verdict: Option<&str>,
    ) -> Result<Script, String> {
        let budget = Arc::new(budget);
        let world = Arc::new(Mutex::new(World::new(entry.name.clone(), Arc::clone(&budget))));
        let mut engine = Engine::new();
        limit(&mut engine, operations, &budget);
        functions::register(&mut engine, &world);
        let fault = |why: String| format!("{}: {why}", entry.file);
        let run = || {
            let ast = engine.compile(&text).map_err(|error| error.to_string())?;
            budget.begin();
            engine.run_ast(&ast).map_err(|error| reason(&error)).map(|()| ast)
        };
        let ast = on_large_stack(run).map_err(fault)?;
        let has = |function: &str, wanted: usize| {
            ast.iter_functions().any(|known| known.name == function && known.params.len() == wanted)
        };
        let kinds = {
            let mut world = lock(&world);
            world.is_loaded = true;
            for trigger in &world.triggers {
                let wanted = usize::from(!matches!(trigger.kind, TriggerKind::Timer(_)));
                if !has(&trigger.function, wanted) {
                    let parameters = if wanted == 1 { "one parameter" } else { "no parameter" };
                    let name = &trigger.function;
                    return Err(fault(format!(
                        "a trigger calls `{name}`, and there is no fn {name} with {parameters}"
                    )));
                }
            }
            if let Some(function) = verdict {
                verdict::check(&world, function, has(function, 1)).map_err(fault)?;
            } else if world.triggers.is_empty() {
                return Err(fault(
                    "no trigger: on_packet, on_flow, on_certificate or on_timer call functions".to_owned(),
                ));
            }
            world.triggers.iter().map(|trigger| trigger.kind).collect()
        };
        Ok(Script {
            entry: entry.clone(),
            number,
            text,
            operations,
            engine,
            ast,
            world,
            budget,
            kinds,
            limit: LimitState::default(),
            calls: 0,
            faults: 0,
            late: 0,
        })
    }

    /// Whether another load of the same script would do the same, so that this one can go on.
    pub(crate) fn is_same(&self, other: &Script) -> bool {
        let line = other.entry.line;
        self.text == other.text
            && self.operations == other.operations
            && ScriptEntry { line, ..self.entry.clone() } == other.entry
    }

    /// Filters of the script; `number` gives the number of each trigger among all.
    pub(crate) fn askings(&self, first: usize) -> Vec<Asking> {
        let world = lock(&self.world);
        let numbered = world.triggers.iter().enumerate();
        numbered
            .filter_map(|(at, trigger)| {
                let asked = trigger.asked()?;
                let (name, text) = (self.entry.name.clone(), trigger.filter.clone());
                Some(Asking { asked, number: (first + at) as u32, name, text, is_fpl: false })
            })
            .collect()
    }

    /// Whether a timer waits, or a recorder's period is to end.
    pub(crate) fn is_active(&self) -> bool {
        self.kinds.iter().any(|kind| matches!(kind, TriggerKind::Timer(_))) || lock(&self.world).has_records()
    }

    /// Calls the function of a trigger.
    pub(crate) fn call(
        &mut self,
        trigger: usize,
        now_ns: i64,
        subject: Option<&Subject>,
        argument: Option<Dynamic>,
        out: &mut Outbox,
    ) {
        if self.is_late() {
            (self.calls, self.faults) = (self.calls + 1, self.faults + 1);
            return;
        }
        let function = {
            let mut world = lock(&self.world);
            let Some(trigger) = world.triggers.get(trigger).filter(|trigger| trigger.is_on) else { return };
            let function = trigger.function.clone();
            world.now_ns = now_ns;
            world.subject = subject.copied();
            function
        };
        match argument {
            Some(argument) => drop(self.call_with(&function, (argument,), &mut out.faults)),
            None => drop(self.call_with(&function, (), &mut out.faults)),
        }
        self.take_told(now_ns, subject, out);
    }

    /// Calls a function within its budget; `None` if that failed, which is counted and reported the first times.
    fn call_with(
        &mut self,
        function: &str,
        arguments: impl FuncArgs,
        faults: &mut Vec<String>,
    ) -> Option<Dynamic> {
        self.calls += 1;
        let options = CallFnOptions::new().eval_ast(false);
        self.budget.begin();
        let called = self.engine.call_fn_with_options::<Dynamic>(
            options,
            &mut Scope::new(),
            &self.ast,
            function,
            arguments,
        );
        let error = match called {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        self.faults += 1;
        if self.faults <= FAULTS_TOLD {
            faults.push(format!("{}: {}", self.entry.file, reason(&error)));
        }
        self.late += u64::from(self.budget.is_late());
        if self.budget.is_late() && self.late == LATE_MAX {
            let file = &self.entry.file;
            faults.push(format!("{file}: {LATE_MAX} calls ran out of time: it is called no more"));
        }
        None
    }

    /// Takes over the events that the script reported in a call.
    fn take_told(&mut self, now_ns: i64, subject: Option<&Subject>, out: &mut Outbox) {
        let (told, periods, printed) = lock(&self.world).take();
        out.faults.extend(printed.into_iter().map(|line| format!("{}: {line}", self.entry.name)));
        out.tell_periods(periods);
        for told in told {
            let event = Event {
                time_ns: now_ns,
                rule: self.number,
                name: self.entry.name.clone(),
                kind: EventKind::Seen,
                key: Vec::new(),
                value: None,
                is_least: false,
                above: None,
                message: told.message,
                about: told.about,
                swallowed: 0,
                recording: None,
            };
            let subject = told.subject.as_ref().or(subject);
            let limit = (&mut self.limit, self.entry.limit);
            out.tell_script(limit, self.entry.actions.record, subject, event);
        }
    }

    /// Whether it has run out of time so often that it is called no more.
    fn is_late(&self) -> bool {
        self.late >= LATE_MAX
    }

    /// Calls timers that are due, and ends the periods of recorders.
    pub(crate) fn advance(&mut self, now_ns: i64, out: &mut Outbox) {
        for at in 0..self.kinds.len() {
            if let TriggerKind::Timer(every_ns) = self.kinds[at]
                && lock(&self.world).is_due(at, every_ns, now_ns)
            {
                self.call(at, now_ns, None, None, out);
            }
        }
        let ended = lock(&self.world).advance(now_ns);
        out.tell_periods(ended);
    }

    /// The clock was set back.
    pub(crate) fn set_back(&mut self, step: ClockStep, out: &mut Outbox) {
        self.limit.set_back();
        out.tell_periods(lock(&self.world).set_back(step));
    }

    /// Ends the script: recorders return the contents of their present periods.
    pub(crate) fn finish(&mut self) -> Vec<RecordedPeriod> {
        lock(&self.world).finish()
    }

    pub(crate) fn counts(&self) -> RuleCounts {
        let (told, swallowed) = self.limit.counts();
        let (keys, no_room) = lock(&self.world).counts();
        RuleCounts {
            name: self.entry.name.clone(),
            matched: self.calls,
            told,
            swallowed,
            keys,
            no_room,
            late: 0,
            faults: self.faults,
            recordings_lost: 0,
        }
    }
}

/// Does work on a thread that has the stack which scripts may need.
fn on_large_stack<T: Send>(work: impl FnOnce() -> Result<T, String> + Send) -> Result<T, String> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("script".to_owned()).stack_size(STACK_LEN);
        let done = thread.spawn_scoped(scope, work).map(thread::ScopedJoinHandle::join);
        done.map_err(|error| error.to_string())?.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The reason that a call failed, in words.
fn reason(error: &EvalAltResult) -> String {
    match error.unwrap_inner() {
        EvalAltResult::ErrorTerminated(why, place) => format!("{why} ({place})"),
        _ => error.to_string(),
    }
}

/// Limits of a script. `curry` and constants that are computed while a script is compiled make values that no limit
/// sees, and closures that capture variables would make values that hold themselves (so the feature `no_closure`).
fn limit(engine: &mut Engine, operations: u64, budget: &Arc<CallBudget>) {
    let budget = Arc::clone(budget);
    engine
        .set_optimization_level(OptimizationLevel::None)
        .on_progress(move |operations| budget.excess(operations).map(Dynamic::from))
        .set_max_operations(operations)
        .set_max_call_levels(CALLS_DEEP)
        .set_max_expr_depths(64, 32)
        .set_max_string_size(TEXT_MAX)
        .set_max_array_size(ELEMENTS_MAX)
        .set_max_map_size(ELEMENTS_MAX)
        .set_max_variables(256)
        .set_max_functions(256)
        .disable_symbol("eval")
        .disable_symbol("curry");
}

#[cfg(test)]
mod tests;
