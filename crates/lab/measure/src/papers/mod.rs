//! `tapline bench papers`: tables and figures of five documents about packet capture, measured on this machine.
//!
//! ```text
//! section (static): document, its numbers, its conditions --measure--> figures, each with an interval and a plausible range
//!     --> REPORT.json after each section (what --resume reads) --> REPORT.html, text
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `section` | the data: sections, figures, verdicts |
//! | `list` | the sections, in the order of the documents |
//! | `rig` | the means of measuring: the link, runs on it, repeats |
//! | `copies`, `single`, `rates`, `winpcap`, `slides` | measurements |
//! | `page`, `text` | the report |

mod copies;
mod list;
mod page;
mod rates;
mod rig;
mod section;
mod single;
mod slides;
mod text;
mod winpcap;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tapline_sys::usage::{self, CpuTime};

use list::SECTIONS;
use rig::Rig;
use section::{Section, SectionResult};

use crate::scheduled;

/// Sections to measure, and the report's place.
pub(crate) struct PapersOrder<'a> {
    /// Names of sections; all of them if there are none.
    pub(crate) sections: &'a [String],
    pub(crate) is_quick: bool,
    /// Repeats of each run on the link.
    pub(crate) runs: Option<usize>,
    pub(crate) report: &'a Path,
    pub(crate) folder: &'a Path,
    pub(crate) is_json: bool,
    /// Take finished sections from the report's JSON.
    pub(crate) resumes: bool,
    /// List the sections and stop.
    pub(crate) lists: bool,
}

/// All sections, with the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Report {
    machine: MachineFacts,
    sections: Vec<SectionResult>,
    /// Names of sections that a signal kept from being measured.
    missing: Vec<String>,
}

/// The machine of the figures. A report is resumed on the same one only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct MachineFacts {
    processor: String,
    processors: usize,
    kernel: String,
    tsc_ghz: f64,
    version: String,
    is_quick: bool,
    /// Built with optimisation. Otherwise our own code takes several times as long.
    is_optimised: bool,
    /// Load averages at the start; other work widens intervals.
    load: String,
    began: String,
}

impl MachineFacts {
    fn new(rig: &Rig<'_>) -> MachineFacts {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        MachineFacts {
            processor: crate::machine::processor_name(),
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: text("/proc/sys/kernel/osrelease"),
            tsc_ghz: rig.ghz,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            is_quick: rig.is_quick,
            is_optimised: !cfg!(debug_assertions),
            load: text("/proc/loadavg"),
            began: jiff::Timestamp::now().to_string(),
        }
    }

    /// Remark about figures that are too high, or nothing.
    fn caveat(&self) -> &'static str {
        if self.is_optimised {
            return "";
        }
        "This program was built without optimisation: figures of Tapline's own code are several times too high."
    }

    /// Whether results of both may be in one report.
    fn is_same(&self, other: &MachineFacts) -> bool {
        let key = |facts: &MachineFacts| {
            let MachineFacts { processor, processors, kernel, version, is_quick, is_optimised, .. } =
                facts.clone();
            (processor, processors, kernel, version, is_quick, is_optimised)
        };
        key(self) == key(other)
    }
}

/// Measures the sections and writes the report. `is_over` says whether to come to an end.
///
/// # Errors
/// For an unknown section, or if the report cannot be written or resumed. A section that cannot be measured is part of
/// the report, with the reason.
pub(crate) fn run(order: &PapersOrder<'_>, is_over: &(dyn Fn() -> bool + Sync)) -> Result<ExitCode> {
    let wanted = wanted(order.sections)?;
    if order.lists {
        text::list(&mut io::stdout(), &wanted)?;
        return Ok(ExitCode::SUCCESS);
    }
    let scratch = tempfile::Builder::new().prefix("tapline-bench-").tempdir_in(order.folder);
    let scratch = scratch.with_context(|| format!("making a folder in {}", order.folder.display()))?;
    let shown = std::cell::RefCell::new(String::new());
    let progress = |what: &str| progress(&shown.borrow(), what);
    let mut rig = Rig::new(scratch.path(), (order.is_quick, order.runs), is_over, &progress)?;
    let machine = MachineFacts::new(&rig);
    let json = order.report.with_extension("json");
    let mut finished = if order.resumes { finished(&json, &machine)? } else { Vec::new() };
    // Sections that are named are measured again.
    finished.retain(|result| !order.sections.contains(&result.name));
    let mut report = Report { machine, sections: Vec::new(), missing: Vec::new() };
    if !order.is_json {
        text::head(&mut io::stdout(), &report.machine)?;
    }
    for (at, section) in wanted.iter().enumerate() {
        let known = finished.iter().position(|result| result.name == section.name);
        if known.is_none() && is_over() {
            report.missing.push(section.name.to_owned());
            continue;
        }
        *shown.borrow_mut() = format!("{} ({} of {})", section.name, at + 1, wanted.len());
        let Some(result) =
            known.map(|at| finished.remove(at)).or_else(|| measure(section, &mut rig, is_over))
        else {
            report.missing.push(section.name.to_owned());
            continue;
        };
        if !order.is_json {
            text::section(&mut io::stdout(), &result)?;
        }
        report.sections.push(result);
        // Results that are on disk are not measured again.
        write(&json, &serde_json::to_string_pretty(&with(&report, &finished))?)?;
    }
    // Sections of an earlier run that were not asked for now stay in the report.
    let report = with(&report, &finished);
    conclude(order, &report, &json)
}

/// The report with sections of an earlier run.
fn with(report: &Report, finished: &[SectionResult]) -> Report {
    let mut all = report.clone();
    all.sections.extend(finished.iter().cloned());
    all.sections.sort_by_key(|result| SECTIONS.iter().position(|section| section.name == result.name));
    all
}

fn measure(section: &Section, rig: &mut Rig<'_>, is_over: &dyn Fn() -> bool) -> Option<SectionResult> {
    rig.show("");
    let (start, work) = (Instant::now(), OtherWork::begin());
    let found = (section.measure)(rig);
    let others = work.and_then(OtherWork::share);
    rig.show("");
    let findings = match found {
        Err(_) if is_over() => return None,
        Err(error) => {
            section::Findings { left_out: vec![format!("{error:#}")], ..section::Findings::default() }
        }
        Ok(findings) => findings,
    };
    let result = SectionResult::new(section, findings, start.elapsed().as_secs_f64());
    Some(SectionResult { others, ..result })
}

/// Work of programs that this one did not start, while a section was measured. Time in the kernel does not count: the
/// kernel receives our packets in the time of any program.
struct OtherWork {
    start: Instant,
    /// Time of all programs.
    all: Duration,
    /// Time of this one and those that it started and that have ended.
    own: Duration,
}

impl OtherWork {
    fn begin() -> Option<OtherWork> {
        let all = scheduled::user_time()? as f64 / usage::clock_units_per_second() as f64;
        let own = CpuTime::of_process().user + CpuTime::of_children().user;
        Some(OtherWork { start: Instant::now(), all: Duration::from_secs_f64(all), own })
    }

    /// Share of all processors since then.
    fn share(self) -> Option<f64> {
        let now = OtherWork::begin()?;
        let processors = std::thread::available_parallelism().ok()?.get();
        let others = now.all.saturating_sub(self.all).saturating_sub(now.own.saturating_sub(self.own));
        Some(others.as_secs_f64() / (now.start - self.start).as_secs_f64() / processors as f64)
    }
}

fn wanted(names: &[String]) -> Result<Vec<&'static Section>> {
    let find = |name: &String| {
        SECTIONS.iter().find(|section| section.name == *name).with_context(|| {
            let known: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
            format!("no section {name:?}; there are {}", known.join(", "))
        })
    };
    if names.is_empty() { Ok(SECTIONS.iter().collect()) } else { names.iter().map(find).collect() }
}

/// Finished sections of an earlier run; none if there is no file. A section in which something failed is not finished.
fn finished(json: &Path, machine: &MachineFacts) -> Result<Vec<SectionResult>> {
    let text = match fs::read_to_string(json) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("reading {}", json.display()))?,
    };
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a report of `tapline bench papers`", json.display()))?;
    if !report.machine.is_same(machine) {
        bail!(
            "{} is of another machine, version or --quick: leave out --resume, or give another --report",
            json.display()
        );
    }
    Ok(report.sections.into_iter().filter(SectionResult::is_measured).collect())
}

fn conclude(order: &PapersOrder<'_>, report: &Report, json: &Path) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(report)?;
    write(order.report, &page::page(report)?)?;
    write(json, &text)?;
    if order.is_json {
        writeln!(io::stdout(), "{text}")?;
    } else {
        text::end(&mut io::stdout(), report)?;
    }
    let _ = writeln!(io::stderr(), "tapline: report in {} and {}", order.report.display(), json.display());
    let is_faulty = report.sections.iter().any(|section| !section.faults.is_empty());
    Ok(if is_faulty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Writes a file as a whole: a report that is interrupted leaves the one before.
fn write(path: &Path, text: &str) -> Result<()> {
    let beside = PathBuf::from(format!("{}.new", path.display()));
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, path))
        .with_context(|| format!("writing {}", path.display()))
}

/// Shows what is being measured, on a terminal. Nothing clears the line.
fn progress(section: &str, what: &str) {
    if io::stderr().is_terminal() {
        let text = if what.is_empty() { String::new() } else { format!("{section}: {what}") };
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Spread;

    fn machine() -> MachineFacts {
        MachineFacts {
            processor: "x".to_owned(),
            processors: 2,
            kernel: "6".to_owned(),
            tsc_ghz: 2.0,
            version: "1".to_owned(),
            is_quick: true,
            is_optimised: true,
            load: String::new(),
            began: String::new(),
        }
    }

    fn result(name: &str) -> SectionResult {
        let section = SECTIONS.iter().find(|section| section.name == name).expect("a section");
        let spread = Spread { value: 7.0, low: 6.0, high: 8.0 };
        let figures = [("64 <b>", 7.0), ("1514", -3.0)].map(|(row, value)| {
            section::Figure::new(row, "copy", "cycles", Some(Spread { value, ..spread }), [1.0, 9.0])
                .paper(540.0)
        });
        let findings = section::Findings { figures: figures.to_vec(), ..section::Findings::default() };
        SectionResult::new(section, findings, 1.0)
    }

    #[test]
    fn sections_have_names_and_are_found() {
        let mut names: Vec<&str> = SECTIONS.iter().map(|section| section.name).collect();
        assert_eq!(wanted(&["poll".to_owned()]).expect("it is there")[0].name, "poll");
        let error = wanted(&["pol".to_owned()]).err().expect("unknown").to_string();
        assert!(names.iter().all(|name| error.contains(name)), "{error}");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SECTIONS.len());
    }

    #[test]
    fn finished_sections_are_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let json = folder.path().join("report.json");
        assert_eq!(finished(&json, &machine()).expect("nothing yet"), []);
        let failed = SectionResult { figures: Vec::new(), ..result("stamps") };
        let report =
            Report { machine: machine(), sections: vec![result("poll"), failed], missing: Vec::new() };
        write(&json, &serde_json::to_string(&report).expect("JSON")).expect("a file");
        assert_eq!(finished(&json, &machine()).expect("the same machine"), [result("poll")]);
        let other = MachineFacts { is_quick: false, ..machine() };
        let error = finished(&json, &other).expect_err("another").to_string();
        assert!(error.contains("another machine"), "{error}");
        let later = MachineFacts { load: "9".to_owned(), began: "later".to_owned(), ..machine() };
        assert!(finished(&json, &later).is_ok());
    }

    #[test]
    fn the_page_refers_to_nothing_else() {
        let sections = vec![result("copies"), result("poll")];
        let report = Report { machine: machine(), sections, missing: vec!["stamps".to_owned()] };
        let page = page::page(&report).expect("a page");
        for part in ["<svg", "64 &lt;b&gt;", "not plausible: -3.00", "540", "stamps"] {
            assert!(page.contains(part), "{part}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http") && !outside.contains("src=") && !outside.contains("<script"));
        let mut out = Vec::new();
        text::section(&mut out, &report.sections[0]).expect("text");
        text::end(&mut out, &report).expect("text");
        let text = String::from_utf8(out).expect("UTF-8");
        assert!(
            text.contains("not plausible: -3.00") && text.contains("2 figures are not plausible"),
            "{text}"
        );
    }
}
