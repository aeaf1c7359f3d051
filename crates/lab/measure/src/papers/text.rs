//! The report on a terminal.

use std::io::{self, Write};

use super::section::{Section, SectionResult};
use super::{MachineFacts, Report};
use crate::spread::number;

pub(super) fn list(out: &mut impl Write, sections: &[&Section]) -> io::Result<()> {
    sections.iter().try_for_each(|section| {
        writeln!(out, "{:<11} {}: {}, {}", section.name, section.title, section.document, section.place)
    })
}

pub(super) fn head(out: &mut impl Write, machine: &MachineFacts) -> io::Result<()> {
    let MachineFacts { processors, processor, kernel, tsc_ghz, load, .. } = machine;
    writeln!(
        out,
        "{processors} processors, {processor}, Linux {kernel}, time stamp counter {tsc_ghz:.3} GHz, load {load}"
    )?;
    match machine.caveat() {
        "" => Ok(()),
        caveat => writeln!(out, "{caveat}"),
    }
}

pub(super) fn section(out: &mut impl Write, result: &SectionResult) -> io::Result<()> {
    writeln!(out, "\n{}: {}\n{}, {}", result.name, result.title, result.document, result.place)?;
    writeln!(out, "  theirs  {}", result.paper_conditions)?;
    if !result.our_conditions.is_empty() {
        writeln!(out, "  ours    {}", result.our_conditions)?;
    }
    let label = |row: &str, series: &str| format!("{row}, {series}").trim_matches([',', ' ']).to_owned();
    let labels: Vec<String> =
        result.figures.iter().map(|figure| label(&figure.row, &figure.series)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    if !labels.is_empty() {
        writeln!(out, "  {:width$} {:>12} {:>14}  {:<24} unit", "", "theirs", "ours", "interval")?;
    }
    for (figure, label) in result.figures.iter().zip(&labels) {
        let theirs = figure.paper.map_or_else(|| "-".to_owned(), number);
        let (ours, interval, unit) = (figure.shown(), figure.interval(), &figure.unit);
        writeln!(out, "  {label:width$} {theirs:>12} {ours:>14}  {interval:<24} {unit}")?;
    }
    writeln!(out, "  {}", result.change)?;
    result.others_remark().iter().try_for_each(|text| writeln!(out, "  {text}"))?;
    result.left_out.iter().try_for_each(|text| writeln!(out, "  left out: {text}"))?;
    result.faults.iter().try_for_each(|text| writeln!(out, "  fault: {text}"))
}

pub(super) fn end(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let count = |of: fn(&SectionResult) -> usize| report.sections.iter().map(of).sum::<usize>();
    let (figures, implausible) = (count(|section| section.figures.len()), count(SectionResult::implausible));
    writeln!(
        out,
        "\n{} sections, {figures} figures; {implausible} figures are not plausible",
        report.sections.len()
    )?;
    if !report.missing.is_empty() {
        writeln!(out, "not measured: {} (--resume goes on)", report.missing.join(", "))?;
    }
    Ok(())
}
