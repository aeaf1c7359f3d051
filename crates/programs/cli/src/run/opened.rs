//! A plan whose sources and outputs are open, and the workers that it becomes.
//!
//! ```text
//! one worker       sources --> graph
//! several          sources --> head of the plan, in each of them \
//!                  sources --> head of the plan                   >-- join --> tail of the plan, in one more thread
//!                  sources --> head of the plan                  /
//! ```

use std::io;
use std::mem;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use tapline_graph::catalog::{GraphSettings, Property, StageAccess};
use tapline_graph::plan::{self, Plan, SplitPlan, WorkerContext};
use tapline_graph::{Control, MergeInputs, MergedSource, Stage, WorkerMerge, WorkerSource};
use tapline_meters::Meters;
use tapline_packet::Interface;
use tapline_stages::{CommandStarter, SharedOutput, StageSettings};
use tapline_sys::privilege::Identity;
use tapline_sys::sandbox::AllowedAccess;

use super::opening::{self, Opener};
use super::settings::RunSettings;
use crate::args::{LanguageArgs, SNAP_LEN};
use crate::compiler::Compiler;
use crate::privileges;
use crate::session::{BuiltGraph, Outputs, Session, WorkerGraph, Workers, clock, share};

/// A plan with its sources and outputs.
pub(crate) struct OpenPlan<'p> {
    pub(crate) session: Session,
    pub(crate) opener: Opener,
    /// The interfaces that the sources know of now.
    pub(crate) interfaces: Vec<Interface>,
    plan: &'p Plan,
    parts: SplitPlan,
    is_live: bool,
    commands: Option<Arc<CommandStarter>>,
    sources: Vec<Vec<WorkerSource>>,
    head_outputs: Outputs,
    tail_outputs: Outputs,
}

impl<'p> OpenPlan<'p> {
    /// Opens the sources of a plan for each worker, in a session of `user`.
    pub(crate) fn new(
        plan: &'p Plan,
        workers: usize,
        user: Option<&str>,
        language: LanguageArgs,
        settings: RunSettings,
    ) -> Result<OpenPlan<'p>> {
        let mut session = Session::new(user, None)?;
        let commands = command_starter(plan, session.identity.as_ref())
            .context("cannot start the process that starts the commands of rules")?;
        let is_live = plan.has(Property::Live);
        let compiler = Arc::new(Compiler::new(SNAP_LEN, true, language, is_live, settings.netns.as_deref()));
        if is_live {
            session.catch()?;
        }
        let (control, identity) = (Arc::clone(&session.control), session.identity.clone());
        let opener = Opener { settings, compiler, control, identity };
        let sources = opener.sources(plan, workers)?;
        let interfaces = opening::interfaces(sources.iter().take(1).flatten().map(WorkerSource::source));
        session.catch()?;
        let whole = || SplitPlan { head: plan.clone(), ..SplitPlan::default() };
        let parts = if workers > 1 { plan.split() } else { whole() };
        Ok(OpenPlan {
            session,
            opener,
            interfaces,
            plan,
            parts,
            is_live,
            commands,
            sources,
            head_outputs: Outputs::default(),
            tail_outputs: Outputs::default(),
        })
    }

    /// Checks the plan for the interfaces, and opens its outputs.
    pub(crate) fn open_outputs(&mut self) -> Result<()> {
        let OpenPlan { opener, interfaces, parts, is_live, .. } = self;
        opener.check(self.plan, interfaces)?;
        self.head_outputs = opener.outputs(&parts.head, interfaces, *is_live)?;
        self.tail_outputs = opener.outputs(&parts.tail, interfaces, *is_live)?;
        Ok(())
    }

    /// Where its stages read, write and send once all is open. `may_change`: it may become another plan.
    pub(crate) fn needs(&self, may_change: bool) -> AllowedAccess {
        let StageAccess { mut allowed, captures, .. } = self.plan.access();
        self.session.allow_files(&mut allowed, captures);
        // A changed graph may write any file.
        allowed.all_files |= may_change;
        allowed.ip |= may_change;
        allowed
    }

    /// The settings that stages share, with those that the plan determines.
    pub(crate) fn settings(&mut self, settings: StageSettings) -> GraphSettings {
        let compiler = Arc::clone(&self.opener.compiler);
        let options = Arc::new(move |interface: &Interface| compiler.options(interface));
        let settings = StageSettings { options, commands: self.commands.take(), ..settings };
        GraphSettings { workers: self.sources.len(), ..settings.into() }
    }

    /// The graphs of all workers, once rights are given up.
    pub(crate) fn workers(&mut self, meters: &Meters, common: &GraphSettings) -> Result<Workers> {
        let OpenPlan { parts, sources, interfaces, .. } = self;
        let (mut sources, control) = (mem::take(sources), &self.session.control);
        let builder = GraphBuilder { meters, control, common };
        let (head_outputs, tail_outputs) =
            (mem::take(&mut self.head_outputs), mem::take(&mut self.tail_outputs));
        let (workers, inlets) = (sources.len(), sources.first().map_or(0, Vec::len));
        if workers == 1 {
            let sources = sources.remove(0).into_iter().map(WorkerSource::alone).collect();
            let alone = Workers::alone(sources, builder.build(&parts.head, 0, None, head_outputs)?);
            return Ok(Workers { has_scripts: self.plan.has(Property::Scripts), ..alone });
        }
        let (head_handles, mut completers) = handles(head_outputs, workers);
        let (mut tail_handles, of_tail) = handles(tail_outputs, 1);
        completers.extend(of_tail);
        let join = WorkerMerge::new(parts.exits, inlets, workers, mem::take(interfaces));
        let mut heads = Vec::new();
        for (worker, (sources, outputs)) in sources.into_iter().zip(head_handles).enumerate() {
            let exits = MergeInputs::new(&join, worker);
            let marked =
                |(inlet, source): (usize, WorkerSource)| source.marked(exits.watermark(inlet), clock);
            let sources = sources.into_iter().enumerate().map(marked).collect();
            let built = builder.build(&parts.head, worker, Some(&exits), outputs)?;
            heads.push(WorkerGraph::new(sources, built));
        }
        let tail = builder.build(&parts.tail, workers, None, tail_handles.pop().unwrap_or_default())?;
        let tail = Some(WorkerGraph::merged(MergedSource::all(&join), tail));
        Ok(Workers { heads, tail, completers, has_scripts: true })
    }
}

/// Parts that the graphs of all workers share.
struct GraphBuilder<'a> {
    meters: &'a Meters,
    control: &'a Arc<Control>,
    common: &'a GraphSettings,
}

impl GraphBuilder<'_> {
    fn build(
        &self,
        plan: &Plan,
        worker: usize,
        exits: Option<&MergeInputs>,
        mut outputs: Outputs,
    ) -> Result<BuiltGraph> {
        let mut take = |node: usize| Ok(outputs.remove(&node).expect("each output of the plan was opened"));
        let context =
            WorkerContext { worker, control: self.control, common: self.common, exits, output: &mut take };
        plan::build(plan, self.meters, context).map_err(|error| anyhow!(error))
    }
}

/// For each worker its handles of the outputs of a plan, and those that complete them.
fn handles(outputs: Outputs, workers: usize) -> (Vec<Outputs>, Vec<SharedOutput>) {
    let (numbers, outputs): (Vec<usize>, Vec<Box<dyn Stage>>) = outputs.into_iter().unzip();
    // The stages of a graph count packets for all that follows them: what an output no longer takes is lost there.
    let (handles, completers) = share(outputs, workers, false);
    let numbered = |handles: Vec<Box<dyn Stage>>| numbers.iter().copied().zip(handles).collect();
    (handles.into_iter().map(numbered).collect(), completers)
}

/// The process that starts the commands of rules, which a confined one cannot: it has the rights that are left to
/// `identity`. `None` where rules start none.
///
/// To be called before anything is open and threads are made: the process is a fork.
fn command_starter(plan: &Plan, identity: Option<&Identity>) -> io::Result<Option<Arc<CommandStarter>>> {
    if plan.access().commands.is_empty() {
        return Ok(None);
    }
    let give_up = || privileges::give_up(identity).map_err(|error| format!("{error:#}"));
    CommandStarter::start(give_up, || plan.access().commands).map(|starter| Some(Arc::new(starter)))
}
