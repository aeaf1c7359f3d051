//! A graph whose classes, arguments and connections are right, in order.

use super::builder::{Connection, DraftId, Origin, PlanBuilder, StageDraft};
use crate::catalog::{Arguments, Catalog, Outputs, StageClass, StageInput};
use crate::language::SyntaxError;

/// A stage that was checked.
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) is_named: bool,
    pub(super) class: &'static StageClass,
    pub(super) arguments: Arguments,
    /// Outputs that lead here: the index among the checked stages, and which output.
    pub(super) inputs: Vec<(usize, usize)>,
    pub(super) origin: Origin,
}

/// Checks one graph. The stages come in an order in which each precedes those that it leads to.
pub(super) fn check(graph: &PlanBuilder, catalog: &Catalog) -> Result<Vec<Checked>, SyntaxError> {
    let classes = graph.stages.iter().map(|stage| class(stage, catalog)).collect::<Result<Vec<_>, _>>()?;
    for link in &graph.links {
        check_link(graph, &classes, link)?;
    }
    let order = order(graph)?;
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &stage)| places[stage] = place);
    let mut checked: Vec<Checked> = Vec::new();
    for &stage in &order {
        let (declared, class, name) = (&graph.stages[stage], classes[stage], graph.name_of(DraftId(stage)));
        let arguments = Arguments::check(declared, class.parameters)?;
        let links = graph.links.iter().filter(|link| link.to.0 == stage);
        let mut inputs: Vec<(usize, usize)> = links.map(|link| (places[link.from.0], link.output)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        if inputs.is_empty() && !class.is_source() {
            return Err(declared
                .origin
                .error(format!("nothing leads to `{name}`"))
                .hint("connect it: device(eth0) -> ... -> this"));
        }
        let before = inputs.iter().map(|(from, _)| &checked[*from]).collect::<Vec<_>>();
        check_meters(declared, &name, class, &arguments, &before)?;
        let (is_named, origin) = (declared.name.is_some(), declared.origin);
        checked.push(Checked { name, is_named, class, arguments, inputs, origin });
    }
    Ok(checked)
}

/// Only meters lead to a stage that takes flows, and such as go with it.
fn check_meters(
    declared: &StageDraft,
    name: &str,
    class: &StageClass,
    arguments: &Arguments,
    before: &[&Checked],
) -> Result<(), SyntaxError> {
    let StageInput::Flows(check) = class.input else { return Ok(()) };
    if before.iter().any(|stage| stage.class.outputs != Outputs::Flows) {
        let message = format!("`{name}` takes flows, and something else leads to it");
        return Err(declared
            .origin
            .error(message)
            .hint("put a meter right before it: device(eth0) -> flow -> this"));
    }
    let meters: Vec<&Arguments> = before.iter().map(|stage| &stage.arguments).collect();
    check(&meters, arguments).map_err(|why| declared.origin.error(why))
}

fn class(stage: &StageDraft, catalog: &Catalog) -> Result<&'static StageClass, SyntaxError> {
    let name = stage.class.as_str();
    catalog.class(name).ok_or_else(|| {
        let names = catalog.classes().iter().map(|class| class.name);
        let hint = match names
            .clone()
            .min_by_key(|known| distance(known, name))
            .filter(|known| distance(known, name) <= 2)
        {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "there are {}; a name of your own is declared with name :: class",
                names.collect::<Vec<_>>().join(", ")
            ),
        };
        stage.origin.error(format!("there is no class of stages `{name}`")).hint(hint)
    })
}

/// Edit distance: the number of letters that must be changed, added or left out to turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

fn check_link(
    graph: &PlanBuilder,
    classes: &[&'static StageClass],
    link: &Connection,
) -> Result<(), SyntaxError> {
    let [from, to] = [link.from, link.to].map(|stage| graph.name_of(stage));
    let fault = |message: String, hint: &str| {
        let error = link.origin.error(message).hint(hint);
        Err(graph.stages[link.from.0].origin.mark_earlier(error))
    };
    if classes[link.to.0].is_source() {
        return fault(format!("`{to}` is a source: nothing leads to it"), "a source comes first");
    }
    if link.input > 0 {
        return fault(format!("`{to}` has no input [{}]", link.input), "it has one: [0], or nothing");
    }
    match classes[link.from.0].outputs {
        Outputs::None => fault(
            format!("`{from}` is the end of a way: nothing follows it"),
            "connect the stage before it to both",
        ),
        Outputs::One | Outputs::Flows if link.output > 0 => fault(
            format!("`{from}` has no output [{}]", link.output),
            "it has one, which may lead to several stages",
        ),
        _ => Ok(()),
    }
}

/// The stages in an order in which each precedes those that it leads to, as early as it was written.
fn order(graph: &PlanBuilder) -> Result<Vec<usize>, SyntaxError> {
    let count = graph.stages.len();
    let mut waiting: Vec<usize> = vec![0; count];
    graph.links.iter().for_each(|link| waiting[link.to.0] += 1);
    let mut order = Vec::new();
    let mut is_done = vec![false; count];
    while let Some(next) = (0..count).find(|&stage| !is_done[stage] && waiting[stage] == 0) {
        is_done[next] = true;
        order.push(next);
        let leaving = graph.links.iter().filter(|link| link.from.0 == next);
        leaving.for_each(|link| waiting[link.to.0] -= 1);
    }
    match (0..count).find(|&stage| !is_done[stage] && is_in_loop(graph, stage)) {
        Some(stage) => {
            let name = graph.name_of(DraftId(stage));
            let message = format!("packets would go round in a loop through `{name}`");
            Err(graph.stages[stage].origin.error(message).hint("a graph leads from sources to ends"))
        }
        None => Ok(order),
    }
}

/// Whether a stage leads to itself.
fn is_in_loop(graph: &PlanBuilder, stage: usize) -> bool {
    let mut seen = vec![false; graph.stages.len()];
    let mut work = vec![stage];
    while let Some(at) = work.pop() {
        for DraftId(to) in graph.links.iter().filter(|link| link.from.0 == at).map(|link| link.to) {
            if to == stage {
                return true;
            }
            if !std::mem::replace(&mut seen[to], true) {
                work.push(to);
            }
        }
    }
    false
}
