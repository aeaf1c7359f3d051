//! The report as one page that refers to nothing else.

use std::fmt::Write as _;

use anyhow::Result;

use super::Report;
use super::section::{Figure, SectionResult, Verdict};
use crate::spread::number;
use crate::system::html::{STYLE, escape, picture};
use crate::system::plot::{Bar, Bars};

/// The page.
///
/// # Errors
/// If a chart cannot be drawn.
pub(super) fn page(report: &Report) -> Result<String> {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Tapline: the papers' tables</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>Tables and figures of the papers, on this machine</h1>\n"
    );
    head(&mut page, report);
    for result in &report.sections {
        section(&mut page, result)?;
    }
    page += "</body></html>\n";
    Ok(page)
}

fn head(page: &mut String, report: &Report) {
    let machine = &report.machine;
    let _ = writeln!(
        page,
        "<p>{} processors, {}, Linux {}; began {} with load {}. A cycle is one tick of the time stamp counter, \
         {:.3} GHz. Values are medians; the interval holds the true median in 95 of 100 cases, or is from the least to \
         the most of fewer than six runs. A value outside of the range that is possible for it is shown as not \
         plausible.</p>",
        machine.processors,
        escape(&machine.processor),
        escape(&machine.kernel),
        escape(&machine.began),
        escape(&machine.load),
        machine.tsc_ghz,
    );
    if !machine.caveat().is_empty() {
        let _ = writeln!(page, "<p class=\"bad\">{}</p>", machine.caveat());
    }
    *page += "<ul>";
    for result in &report.sections {
        let implausible = match result.implausible() {
            0 => String::new(),
            count => format!(" <span class=\"bad\">{count} not plausible</span>"),
        };
        let _ = write!(
            page,
            "<li><a href=\"#{}\">{}</a>: {}, {}{implausible}</li>",
            result.name,
            escape(&result.title),
            escape(&result.document),
            escape(&result.place)
        );
    }
    *page += "</ul>\n";
    if !report.missing.is_empty() {
        let _ = writeln!(page, "<p class=\"bad\">Not measured: {}.</p>", escape(&report.missing.join(", ")));
    }
}

fn section(page: &mut String, result: &SectionResult) -> Result<()> {
    let _ = writeln!(
        page,
        "<h2 id=\"{}\">{}</h2>\n<p class=\"source\">{}, {}. Theirs: {}{}</p>",
        result.name,
        escape(&result.title),
        escape(&result.document),
        escape(&result.place),
        escape(&result.paper_conditions),
        if result.our_conditions.is_empty() {
            String::new()
        } else {
            format!(" Ours: {}", escape(&result.our_conditions))
        }
    );
    for bars in charts(&result.figures) {
        picture(page, &bars)?;
    }
    table(page, &result.figures);
    let _ = writeln!(page, "<p>{}</p>", escape(&result.change));
    if let Some(text) = result.others_remark() {
        let _ = writeln!(page, "<p class=\"bad\">Note: {}.</p>", escape(&text));
    }
    for text in &result.left_out {
        let _ = writeln!(page, "<p class=\"source\">Left out: {}.</p>", escape(text));
    }
    for text in &result.faults {
        let _ = writeln!(page, "<p class=\"bad\">Fault: {}.</p>", escape(text));
    }
    Ok(())
}

/// A chart for each unit of which there are several figures: ours as bars, and the document's where it has any.
fn charts(figures: &[Figure]) -> Vec<Bars> {
    let mut units: Vec<&str> = figures.iter().map(|figure| figure.unit.as_str()).collect();
    units.dedup();
    let mut charts = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        if units[..at].contains(unit) {
            continue;
        }
        let of_unit = || figures.iter().filter(|figure| figure.unit == *unit);
        if of_unit().count() < 2 {
            continue;
        }
        let mut bars = Bars { unit: (*unit).to_owned(), ..Bars::default() };
        for figure in of_unit() {
            let series = if figure.series.is_empty() { "ours" } else { &figure.series };
            if let Some(ours) = figure.ours.filter(|_| figure.verdict == Verdict::Measured) {
                bars.put(&figure.row, series, Bar { value: ours.value, least: ours.low, most: ours.high });
            }
            if let Some(value) = figure.paper {
                let series = format!("{series}, the paper's");
                bars.put(
                    &figure.row,
                    series.trim_start_matches("ours, "),
                    Bar { value, least: value, most: value },
                );
            }
        }
        bars.cut_names();
        charts.push(bars);
    }
    charts
}

fn table(page: &mut String, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    *page += "<div class=\"wide\"><table><tr><th></th><th></th><th>theirs</th><th>ours</th><th>interval</th><th>unit</th>\
              <th>plausible</th></tr>\n";
    for figure in figures {
        let class = if figure.verdict == Verdict::NotPlausible { " class=\"bad\"" } else { "" };
        let [least, most] = figure.plausible;
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td{class}>{}</td><td>{}</td><td>{}{}</td><td>{} to {}</td></tr>",
            escape(&figure.row),
            escape(&figure.series),
            figure.paper.map(number).unwrap_or_default(),
            escape(&figure.shown()),
            figure.interval(),
            escape(&figure.unit),
            if figure.is_difference { ", by difference" } else { "" },
            number(least),
            number(most),
        );
    }
    *page += "</table></div>\n";
}
