//! A tree whose classes, arguments and connections are right, in order.

use crate::catalog::{self, Arguments, CLASSES, Constructor, Outputs, StageClass, StageInput};
use crate::language::{Ast, Connection, Span, StageDeclaration, SyntaxError, parse};

/// A stage that was checked.
pub(super) struct Checked {
    pub(super) name: String,
    pub(super) is_named: bool,
    pub(super) class: &'static StageClass,
    pub(super) arguments: Arguments,
    /// Outputs that lead here: the index among the checked stages, and which output.
    pub(super) inputs: Vec<(usize, usize)>,
    pub(super) span: Span,
}

/// Parses and checks one text. The stages come in an order in which each stands before those that it leads to.
pub(super) fn check(text: &str) -> Result<Vec<Checked>, SyntaxError> {
    let ast = parse(text)?;
    let classes =
        ast.stages.iter().map(|stage| class(&stage.class, stage.span)).collect::<Result<Vec<_>, _>>()?;
    for link in &ast.links {
        check_link(&ast, &classes, link)?;
    }
    let order = order(&ast)?;
    let mut places = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &stage)| places[stage] = place);
    let mut checked: Vec<Checked> = Vec::new();
    for &stage in &order {
        let declared = &ast.stages[stage];
        let class = classes[stage];
        let arguments = Arguments::check(declared, class.parameters)?;
        let links = ast.links.iter().filter(|link| link.to == stage);
        let mut inputs: Vec<(usize, usize)> = links.map(|link| (places[link.from], link.output)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        if inputs.is_empty() && !matches!(class.make, Constructor::Source) {
            return Err(SyntaxError::at(declared.span, format!("nothing leads to `{}`", declared.name))
                .hint("connect it: device(eth0) -> ... -> this"));
        }
        let before = inputs.iter().map(|(from, _)| &checked[*from]).collect::<Vec<_>>();
        check_meters(declared, class, &arguments, &before)?;
        let (name, is_named, span) = (declared.name.clone(), declared.is_named, declared.span);
        checked.push(Checked { name, is_named, class, arguments, inputs, span });
    }
    Ok(checked)
}

/// Only meters lead to a stage that takes flows, and such as go with it.
fn check_meters(
    declared: &StageDeclaration,
    class: &StageClass,
    arguments: &Arguments,
    before: &[&Checked],
) -> Result<(), SyntaxError> {
    let StageInput::Flows(check) = class.input else { return Ok(()) };
    if before.iter().any(|stage| stage.class.outputs != Outputs::Flows) {
        let message = format!("`{}` takes flows, and something else leads to it", declared.name);
        return Err(SyntaxError::at(declared.span, message)
            .hint("put a meter right before it: device(eth0) -> flow -> this"));
    }
    let meters: Vec<&Arguments> = before.iter().map(|stage| &stage.arguments).collect();
    check(&meters, arguments).map_err(|why| SyntaxError::at(declared.span, why))
}

fn class(name: &str, span: Span) -> Result<&'static StageClass, SyntaxError> {
    catalog::class(name).ok_or_else(|| {
        let names = CLASSES.iter().map(|class| class.name);
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
        SyntaxError::at(span, format!("there is no class of stages `{name}`")).hint(hint)
    })
}

/// How many letters must be changed, added or left out to make one word of the other.
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

fn check_link(ast: &Ast, classes: &[&'static StageClass], link: &Connection) -> Result<(), SyntaxError> {
    let (from, to) = (&ast.stages[link.from], &ast.stages[link.to]);
    let fault = |message: String, hint: &str| {
        Err(SyntaxError::at(link.span, message).with_earlier_place(from.span).hint(hint))
    };
    if matches!(classes[link.to].make, Constructor::Source) {
        return fault(format!("`{}` is a source: nothing leads to it", to.name), "a source stands first");
    }
    if link.input > 0 {
        return fault(format!("`{}` has no input [{}]", to.name, link.input), "it has one: [0], or nothing");
    }
    match classes[link.from].outputs {
        Outputs::None => fault(
            format!("`{}` is the end of a way: nothing follows it", from.name),
            "connect what stands before it to both",
        ),
        Outputs::One | Outputs::Flows if link.output > 0 => fault(
            format!("`{}` has no output [{}]", from.name, link.output),
            "it has one, which may lead to several stages",
        ),
        _ => Ok(()),
    }
}

/// The stages in an order in which each stands before those that it leads to, as early as it was written.
fn order(ast: &Ast) -> Result<Vec<usize>, SyntaxError> {
    let mut waiting: Vec<usize> = vec![0; ast.stages.len()];
    ast.links.iter().for_each(|link| waiting[link.to] += 1);
    let mut order = Vec::new();
    let mut is_done = vec![false; ast.stages.len()];
    while let Some(next) = (0..ast.stages.len()).find(|&stage| !is_done[stage] && waiting[stage] == 0) {
        is_done[next] = true;
        order.push(next);
        ast.links.iter().filter(|link| link.from == next).for_each(|link| waiting[link.to] -= 1);
    }
    match (0..ast.stages.len()).find(|&stage| !is_done[stage] && is_in_loop(ast, stage)) {
        Some(stage) => {
            let declared = &ast.stages[stage];
            let message = format!("packets would go round in a loop through `{}`", declared.name);
            Err(SyntaxError::at(declared.span, message).hint("a graph leads from sources to ends"))
        }
        None => Ok(order),
    }
}

/// Whether a stage leads to itself.
fn is_in_loop(ast: &Ast, stage: usize) -> bool {
    let mut seen = vec![false; ast.stages.len()];
    let mut work = vec![stage];
    while let Some(at) = work.pop() {
        for link in ast.links.iter().filter(|link| link.from == at) {
            if link.to == stage {
                return true;
            }
            if !std::mem::replace(&mut seen[link.to], true) {
                work.push(link.to);
            }
        }
    }
    false
}
