//! The report as one page that refers to nothing else: tables, pictures, and the account of every run.

use std::fmt::Write as _;

use anyhow::Result;

use super::plot::{Bar, Bars};
use super::results::{CaseResult, LimitResult, Results, WorkloadResult};
use super::trial::TrialOutcome;
use super::workload::{Case, Chart};

pub(crate) const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#1b1b1b}\
h1{font-size:1.7em;margin-bottom:.2em}h2{font-size:1.25em;margin:2.2em 0 .3em;border-top:1px solid #ccc;padding-top:1em}\
table{border-collapse:collapse;margin:.8em 0;font-size:.92em}th,td{padding:.2em .7em;text-align:right;border-bottom:1px solid #e2e2e2}\
td{white-space:nowrap}th{font-weight:600;background:#f5f5f5}td:first-child,th:first-child{text-align:left}.source{color:#555}\
.ok{color:#00693e}.bad{color:#b3261e;font-weight:600}summary{cursor:pointer;color:#0b57a4}svg{max-width:100%;height:auto}\
.wide{overflow-x:auto}.key{margin-right:1.2em;white-space:nowrap}.key i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}";

/// The page.
///
/// # Errors
/// If a picture cannot be drawn.
pub(crate) fn page(results: &Results) -> Result<String> {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Tapline bench</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n<h1>Tapline bench</h1>\n"
    );
    head(&mut page, results);
    verdicts(&mut page, results);
    for workload in &results.workloads {
        section(&mut page, workload, results.machine.tsc_ghz)?;
    }
    accounts(&mut page, results);
    page += "</body></html>\n";
    Ok(page)
}

fn head(page: &mut String, results: &Results) {
    let machine = &results.machine;
    let _ = writeln!(
        page,
        "<p>{} processors, {}, Linux {}; began {} with load {}. Generator on core {}, kernel and program on core {}. \
         Medians of {} interleaved runs; whiskers and brackets show the least and the most. Files went to {} ({}).</p>",
        machine.processors,
        escape(&machine.processor),
        escape(&machine.kernel),
        escape(&machine.began),
        escape(&machine.load),
        machine.cores.sender,
        machine.cores.receiver,
        machine.runs,
        escape(&machine.folder),
        escape(&machine.file_system),
    );
    let _ = writeln!(page, "<p><code>{}</code></p>", escape(&machine.command));
    if machine.cores.sender == machine.cores.receiver {
        *page += "<p class=\"bad\">There is one core only: the generator takes it from the programs.</p>\n";
    }
    if results.is_interrupted {
        *page += "<p class=\"bad\">The bench was interrupted: the runs shown are complete, the others are missing.</p>\n";
    }
    let programs = machine.programs.iter().map(|presence| match (&presence.version, &presence.absence) {
        (_, Some(absence)) => format!("<li>{}: left out, {}</li>", presence.program.name(), escape(absence)),
        (Some(version), None) => format!("<li>{}: {}</li>", presence.program.name(), escape(version)),
        (None, None) => format!("<li>{}</li>", presence.program.name()),
    });
    let _ = writeln!(page, "<ul>{}</ul>", programs.collect::<String>());
}

fn verdicts(page: &mut String, results: &Results) {
    *page += "<h2>In short</h2>\n<ul>\n";
    let runs = results.outcomes().count();
    let faulty = results.outcomes().filter(|(_, run)| !run.faults.is_empty()).count();
    let _ = if faulty == 0 {
        writeln!(
            page,
            "<li class=\"ok\">In each of {runs} runs the account balances: made = captured + filtered + lost, by place; \
             and each file holds the captured packets.</li>"
        )
    } else {
        writeln!(page, "<li class=\"bad\">{faulty} of {runs} runs have a fault: see the accounts.</li>")
    };
    for goal in &results.goals {
        let class = if goal.is_met { "ok" } else { "bad" };
        let _ = writeln!(
            page,
            "<li class=\"{class}\">{}: {:.2} times; the goal of {} is {}.</li>",
            escape(&goal.what),
            goal.ratio,
            goal.goal,
            goal.verdict.to_lowercase()
        );
    }
    *page += "</ul>\n";
}

fn section(page: &mut String, result: &WorkloadResult, tsc_ghz: f64) -> Result<()> {
    let workload = &result.workload;
    let _ = writeln!(
        page,
        "<h2 id=\"{0}\">{1}</h2>\n<p>{2}</p>",
        workload.name,
        escape(&workload.title),
        escape(&workload.about)
    );
    if !workload.source.is_empty() {
        let _ = writeln!(page, "<p class=\"source\">{}.</p>", escape(&workload.source));
    }
    if !result.cases.is_empty() {
        picture(page, &bars_of_cases(result))?;
        cases(page, &result.cases, tsc_ghz);
    }
    if !result.limits.is_empty() {
        picture(page, &bars_of_limits(&result.limits))?;
        limits(page, &result.limits);
    }
    if !workload.figures.is_empty() {
        *page += "<table><tr><th>of the source</th><th></th></tr>";
        for figure in &workload.figures {
            let _ =
                write!(page, "<tr><td>{}</td><td>{}</td></tr>", escape(&figure.what), escape(&figure.value));
        }
        *page += "</table>\n";
    }
    for text in &result.left_out {
        let _ = writeln!(page, "<p class=\"source\">Left out: {}.</p>", escape(text));
    }
    Ok(())
}

pub(crate) fn picture(page: &mut String, bars: &Bars) -> Result<()> {
    *page += "<p>";
    for (name, colour) in bars.legend() {
        let _ =
            write!(page, "<span class=\"key\"><i style=\"background:{colour}\"></i>{}</span> ", escape(name));
    }
    *page += "</p>\n";
    *page += &bars.svg()?;
    Ok(())
}

/// Parameters that differ between cases of one workload, in addition to the program.
fn label(case: &Case, all: &[&Case]) -> String {
    let differs = |same: &dyn Fn(&Case) -> bool| all.iter().any(|other| !same(other));
    let mut parts = Vec::new();
    if differs(&|other| other.filter == case.filter) {
        parts.push(case.filter.clone());
    }
    if differs(&|other| other.size == case.size) {
        parts.push(format!("{} bytes", case.size));
    }
    if differs(&|other| other.snap == case.snap) {
        parts.push(if case.snap >= case.size { "whole".to_owned() } else { format!("first {}", case.snap) });
    }
    if differs(&|other| other.buffer == case.buffer) {
        parts.push(format!("{} MiB", case.buffer));
    }
    if parts.is_empty() {
        parts.push(format!("{} bytes", case.size));
    }
    parts.join(", ")
}

fn bars_of_cases(result: &WorkloadResult) -> Bars {
    let all: Vec<&Case> = result.cases.iter().map(|case| &case.case).collect();
    let chart = result.workload.chart;
    let unit = match chart {
        Chart::Share => "% captured",
        Chart::Rate => "packets a second",
        Chart::Cost => "ns of the receiving core a packet",
    };
    let mut bars = Bars {
        unit: unit.to_owned(),
        top: if chart == Chart::Share { 100.0 } else { 0.0 },
        ..Bars::default()
    };
    for case in &result.cases {
        bars.put(&label(&case.case, &all), case.case.program.name(), bar(case, chart));
    }
    bars.cut_names();
    bars
}

fn bar(case: &CaseResult, chart: Chart) -> Bar {
    let medians = &case.medians;
    match chart {
        Chart::Share => Bar {
            value: medians.share * 100.0,
            least: medians.share_min * 100.0,
            most: medians.share_max * 100.0,
        },
        Chart::Cost => Bar { value: medians.cost_ns, least: medians.cost_min_ns, most: medians.cost_max_ns },
        Chart::Rate => {
            let rates = || case.runs.iter().map(TrialOutcome::captured_rate);
            Bar {
                value: medians.captured_rate,
                least: rates().fold(f64::INFINITY, f64::min),
                most: rates().fold(0.0, f64::max),
            }
        }
    }
}

fn cases(page: &mut String, results: &[CaseResult], tsc_ghz: f64) {
    let all: Vec<&Case> = results.iter().map(|result| &result.case).collect();
    *page += "<div class=\"wide\"><table><tr><th>traffic</th><th>program</th><th>offered/s</th><th>captured/s</th><th>share</th>\
              <th>[least, most]</th><th>ns/packet</th><th>cycles/packet</th><th>of these, program</th></tr>\n";
    for CaseResult { case, medians, .. } in results {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.1} %</td><td>[{:.1}, {:.1}]</td><td>{:.0}</td><td>{:.0}</td><td>{:.0} ns</td></tr>",
            escape(&label(case, &all)),
            case.program.name(),
            grouped(medians.offered_rate),
            grouped(medians.captured_rate),
            medians.share * 100.0,
            medians.share_min * 100.0,
            medians.share_max * 100.0,
            medians.cost_ns,
            medians.cost_ns * tsc_ghz,
            medians.program_ns,
        );
    }
    *page += "</table></div>\n";
}

fn bars_of_limits(limits: &[LimitResult]) -> Bars {
    let all: Vec<&Case> = limits.iter().map(|limit| &limit.case).collect();
    let mut bars = Bars { unit: "packets a second".to_owned(), ..Bars::default() };
    for limit in limits {
        let bar = Bar { value: limit.rate, least: limit.rate_min, most: limit.rate_max };
        bars.put(&label(&limit.case, &all), limit.case.program.name(), bar);
    }
    bars
}

fn limits(page: &mut String, limits: &[LimitResult]) {
    let all: Vec<&Case> = limits.iter().map(|limit| &limit.case).collect();
    *page += "<table><tr><th>traffic</th><th>program</th><th>packets/s without loss</th><th>[least, most]</th><th>limited by</th></tr>\n";
    for limit in limits {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>[{}, {}]</td><td>{}</td></tr>",
            escape(&label(&limit.case, &all)),
            limit.case.program.name(),
            grouped(limit.rate),
            grouped(limit.rate_min),
            grouped(limit.rate_max),
            if limit.is_generators { "the generator" } else { "the receiver" },
        );
    }
    *page += "</table>\n";
}

fn accounts(page: &mut String, results: &Results) {
    *page += "<h2>The account of every run</h2>\n<details><summary>made = link full + lost on link + filtered + lost in the ring + unread + captured + unexplained</summary>\n\
              <div class=\"wide\"><table><tr><th>program</th><th>bytes</th><th>snap</th><th>filter</th><th>made</th><th>link full</th><th>lost on link</th><th>filtered</th>\
              <th>ring full</th><th>unread</th><th>captured</th><th>in the file</th><th>unexplained</th><th></th></tr>\n";
    for (case, run) in results.outcomes() {
        let stored = run.stored.map_or_else(String::new, |stored| stored.to_string());
        let verdict = if run.faults.is_empty() {
            "<td class=\"ok\">balances</td>".to_owned()
        } else {
            format!("<td class=\"bad\">{}</td>", escape(&run.faults.join("; ")))
        };
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{stored}</td><td>{}</td>{verdict}</tr>",
            case.program.name(),
            case.size,
            case.snap,
            escape(&case.filter),
            run.made,
            run.refused,
            run.lost_on_link,
            run.filtered,
            run.dropped,
            run.unread,
            run.captured,
            run.unexplained,
        );
    }
    *page += "</table></div></details>\n";
}

/// A whole number with commas.
pub(crate) fn grouped(value: f64) -> String {
    tapline_graph::grouped(value.round().max(0.0) as u64)
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::programs::Program;

    fn case(size: u32, snap: u32) -> Case {
        Case { program: Program::Tapline, size, snap, filter: String::new(), buffer: 32 }
    }

    #[test]
    fn labels_name_the_difference() {
        let (a, b, c) = (case(60, 262_144), case(1514, 262_144), case(1514, 68));
        assert_eq!(label(&a, &[&a]), "60 bytes");
        assert_eq!(label(&a, &[&a, &b]), "60 bytes");
        assert_eq!(label(&c, &[&a, &b, &c]), "1514 bytes, first 68");
        assert_eq!(label(&b, &[&b, &c]), "whole");
        let larger = Case { buffer: 64, ..a.clone() };
        assert_eq!(label(&larger, &[&a, &larger]), "64 MiB");
    }

    #[test]
    fn hostile_words_stay_words() {
        assert_eq!(escape("<script>\"&"), "&lt;script&gt;&quot;&amp;");
    }
}
