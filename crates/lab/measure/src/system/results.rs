//! Results of a bench: every run, and the medians.

use std::ops::RangeInclusive;

use serde::Serialize;

use super::arena::Cores;
use super::limit::Limit;
use super::programs::Program;
use super::trial::TrialOutcome;
use super::workload::{Case, Workload};
use crate::runs::{RATIOS, judge, median};

/// All results; `--json` writes them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) workloads: Vec<WorkloadResult>,
    /// Goals, and whether they hold here.
    pub(crate) goals: Vec<Goal>,
    /// Whether every account of every run balanced and every file held the captured packets.
    pub(crate) is_balanced: bool,
    /// Whether it was ended before its end.
    pub(crate) is_interrupted: bool,
}

/// The machine of the figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    pub(crate) load: String,
    /// When it began, RFC 3339 in UTC.
    pub(crate) began: String,
    pub(crate) command: String,
    pub(crate) tsc_ghz: f64,
    pub(crate) cores: Cores,
    pub(crate) runs: usize,
    pub(crate) folder: String,
    pub(crate) file_system: String,
    /// Each program with its version, or why it is not there.
    pub(crate) programs: Vec<Presence>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Presence {
    pub(crate) program: Program,
    pub(crate) version: Option<String>,
    pub(crate) absence: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadResult {
    #[serde(flatten)]
    pub(crate) workload: Workload,
    pub(crate) cases: Vec<CaseResult>,
    pub(crate) limits: Vec<LimitResult>,
    /// Parts left out, with the reason.
    pub(crate) left_out: Vec<String>,
}

/// All runs of one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CaseResult {
    #[serde(flatten)]
    pub(crate) case: Case,
    pub(crate) medians: Medians,
    pub(crate) runs: Vec<TrialOutcome>,
}

/// Medians of a case's runs, and their spread.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Medians {
    pub(crate) offered_rate: f64,
    pub(crate) captured_rate: f64,
    pub(crate) share: f64,
    pub(crate) share_min: f64,
    pub(crate) share_max: f64,
    pub(crate) cost_ns: f64,
    pub(crate) cost_min_ns: f64,
    pub(crate) cost_max_ns: f64,
    pub(crate) program_ns: f64,
}

impl Medians {
    pub(crate) fn of(runs: &[TrialOutcome]) -> Medians {
        let middle = |value: fn(&TrialOutcome) -> f64| median(runs.iter().map(value));
        let least = |value: fn(&TrialOutcome) -> f64| runs.iter().map(value).fold(f64::INFINITY, f64::min);
        let most = |value: fn(&TrialOutcome) -> f64| runs.iter().map(value).fold(0.0, f64::max);
        if runs.is_empty() {
            return Medians::default();
        }
        Medians {
            offered_rate: middle(TrialOutcome::offered_rate),
            captured_rate: middle(TrialOutcome::captured_rate),
            share: middle(TrialOutcome::share),
            share_min: least(TrialOutcome::share),
            share_max: most(TrialOutcome::share),
            cost_ns: middle(TrialOutcome::cost_ns),
            cost_min_ns: least(TrialOutcome::cost_ns),
            cost_max_ns: most(TrialOutcome::cost_ns),
            program_ns: middle(|run| run.program_ns as f64 / run.received.max(1) as f64),
        }
    }
}

/// The limit of one program.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LimitResult {
    #[serde(flatten)]
    pub(crate) case: Case,
    /// The median over all searches, packets a second.
    pub(crate) rate: f64,
    pub(crate) rate_min: f64,
    pub(crate) rate_max: f64,
    pub(crate) is_generators: bool,
    pub(crate) searches: Vec<Limit>,
}

impl LimitResult {
    pub(crate) fn of(case: Case, searches: Vec<Limit>) -> LimitResult {
        let rates = || searches.iter().map(|limit| limit.rate);
        LimitResult {
            case,
            rate: median(rates()),
            rate_min: rates().fold(f64::INFINITY, f64::min),
            rate_max: rates().fold(0.0, f64::max),
            is_generators: searches.iter().any(|limit| limit.is_generators),
            searches,
        }
    }
}

/// A goal for limits: Tapline's is at least `goal` times another's; `ratio` is the measured one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) goal: f64,
    pub(crate) ratio: f64,
    pub(crate) is_met: bool,
    /// `met`, `MISSED`, or `not plausible` for a ratio that cannot be right.
    pub(crate) verdict: &'static str,
}

/// AF_PACKET against tcpdump, AF_XDP against dropping everything, of all workloads with these limits.
fn goals(workloads: &[WorkloadResult]) -> Vec<Goal> {
    // What drops every packet is the limit of the set-up: twice its rate is a mistake.
    const GOALS: [(Program, Program, f64, RangeInclusive<f64>, &str); 2] = [
        (
            Program::Tapline,
            Program::Tcpdump,
            1.3,
            RATIOS,
            "highest rate without loss, AF_PACKET compared with tcpdump",
        ),
        (
            Program::TaplineXdp,
            Program::XdpDrop,
            0.75,
            1e-4..=2.0,
            "highest rate without loss, AF_XDP compared with an XDP program that drops",
        ),
    ];
    let mut goals = Vec::new();
    for result in workloads {
        for (ours, theirs, goal, plausible, what) in GOALS {
            for our in result.limits.iter().filter(|limit| limit.case.program == ours) {
                let is_peer = |limit: &&LimitResult| {
                    limit.case.program == theirs
                        && (limit.case.size, limit.case.snap) == (our.case.size, our.case.snap)
                };
                let Some(their) = result.limits.iter().find(is_peer).filter(|their| their.rate > 0.0) else {
                    continue;
                };
                let ratio = our.rate / their.rate;
                let what = format!("{what}, {} bytes", our.case.size);
                let verdict = judge(ratio, plausible.clone(), |ratio| ratio >= goal);
                goals.push(Goal { what, goal, ratio, is_met: verdict == "met", verdict });
            }
        }
    }
    goals
}

impl Results {
    pub(crate) fn new(machine: Machine, workloads: Vec<WorkloadResult>, is_interrupted: bool) -> Results {
        let goals = goals(&workloads);
        let mut results = Results { machine, workloads, goals, is_balanced: false, is_interrupted };
        let is_balanced = results.outcomes().all(|(_, run)| run.faults.is_empty());
        results.is_balanced = is_balanced;
        results
    }

    /// Every run there was, those of searches too, with whose it was.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&Case, &TrialOutcome)> {
        self.workloads.iter().flat_map(|result| {
            let cases =
                result.cases.iter().flat_map(|case| case.runs.iter().map(move |run| (&case.case, run)));
            let limits = result.limits.iter().flat_map(|limit| {
                let probes = limit.searches.iter().flat_map(|search| &search.probes);
                probes.map(move |probe| (&limit.case, &probe.outcome))
            });
            cases.chain(limits)
        })
    }
}
