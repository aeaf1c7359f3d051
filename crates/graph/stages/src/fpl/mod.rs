//! `fpl`: packets for which a program returns other than 0.

mod decide;
mod program;

use std::sync::Arc;

use tapline_graph::catalog::{
    Arguments, BuildContext, Constructor, GraphSettings, OpenError, Order, Parameter, ParameterType,
    StageClass,
};
use tapline_graph::{Cell, Out, Packets, Stage, StageCounters, StageStatus, Table, TickContext};
use tapline_packet::Interface;
use tapline_source::Error;

pub use decide::{CompileFpl, FplStage};
pub use program::{FplProgram, functions, search_function};

pub(crate) const CLASS: StageClass = StageClass {
    name: "fpl",
    summary: "packets for which a program in FPL returns other than 0",
    description: "The program has memory, which lives as long as the graph (docs/filter/fpl.md). The result shows the cells of its memory \
        that are not 0. With label=yes a packet passes with the number that the program returns as its label (255 for a greater one), by which \
        switch(by=label) chooses its output.",
    parameters: &[
        Parameter::required("file", ParameterType::Path).means("the program"),
        Parameter::new("cells", ParameterType::Number(1, 1 << 24), "1024")
            .means("cells of memory, a power of two"),
        Parameter::new("patterns", ParameterType::Text, "")
            .means("NAME=FILE, several with commas between: EXTERN(NAME, ...) finds the patterns of the file (docs/search.md)"),
        Parameter::new("n", ParameterType::Number(1, 1 << 24), "20")
            .means("cells that the result shows: the first ones"),
        Parameter::new("memory", ParameterType::Text, "")
            .means("a file for the memory: other processes can read and change it (tapline memory), and it outlives the graph"),
        LABEL,
    ],
    order: Order::All,
    example: "device(eth0) -> fpl(\"rtsp.fpl\") -> print",
    // Programs and lists of patterns name further files.
    access: |arguments, access| {
        access.allowed.reads.push("/".into());
        access.makes_file(arguments.text("memory"));
    },
    check,
    make: Constructor::Stage(make),
    ..StageClass::BASE
};

/// Whether the value of a stage becomes the label of its packets.
pub(crate) const LABEL: Parameter = Parameter::new("label", ParameterType::Choice(&["no", "yes"]), "no")
    .means("whether packets get the stage's value as their label, for switch(by=label)");

/// Compiles a program that is in a regular file, so that a mistake shows before anything is opened: a pipe can be read
/// once.
fn check(arguments: &Arguments, interfaces: &[Interface], settings: &GraphSettings) -> Result<(), OpenError> {
    let is_plain = |name: &str| settings.path(name).is_file();
    let mut patterns = searches(arguments).filter_map(|text| text.split_once('='));
    if is_plain(arguments.text("file")) && patterns.all(|(_, name)| is_plain(name)) {
        compile(arguments, settings)?.check(interfaces)?;
    }
    Ok(())
}

fn compile(arguments: &Arguments, settings: &GraphSettings) -> Result<FplProgram, OpenError> {
    let path = settings.path(arguments.text("file"));
    let name = path.display().to_string();
    let text = super::input_file::read_text(&path, super::input_file::PROGRAM_MAX)?;
    let searches = searches(arguments).map(|text| search_function(text, &settings.directory));
    let searches = searches.collect::<Result<Vec<_>, String>>()?;
    Ok(FplProgram::new(&name, &text, arguments.number("cells") as u32, searches)?)
}

fn searches(arguments: &Arguments) -> impl Iterator<Item = &str> {
    arguments.text("patterns").split(',').filter(|text| !text.is_empty())
}

fn make(arguments: &Arguments, site: &BuildContext<'_>) -> Result<Box<dyn Stage>, String> {
    let mut program = compile(arguments, site.common).map_err(|error| error.to_string())?;
    if !arguments.text("memory").is_empty() {
        let path = site.common.path(arguments.text("memory"));
        program = program.in_file(&path).map_err(|error| error.to_string())?;
    }
    let program = Arc::new(program);
    let decider = Arc::clone(&program);
    let decide = FplStage::new(Arc::new(move |interface: &_| decider.engine(0, interface)));
    let decide = decide.sharing(program.shared());
    let decide = if arguments.text("label") == "yes" { decide.labelling() } else { decide };
    Ok(Box::new(Program { decide, program, n: arguments.number("n") as usize }))
}

struct Program {
    decide: FplStage,
    program: Arc<FplProgram>,
    n: usize,
}

impl Stage for Program {
    fn push(&mut self, packets: &mut Packets<'_>, out: &mut Out<'_>) -> Result<(), Error> {
        self.decide.push(packets, out)
    }

    fn tick(&mut self, tick: &TickContext<'_>, out: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.decide.tick(tick, out)
    }

    fn counters(&self) -> StageCounters {
        self.decide.counters()
    }

    fn result(&self) -> Option<Table> {
        let row = |(cell, value): (u64, u64)| vec![Cell::from(cell), Cell::from(value)];
        let rows = self.program.cells(0).take(self.n).map(row).collect();
        Some(Table { columns: vec!["cell", "value"], rows })
    }
}

#[cfg(test)]
mod tests {
    use crate::trial::Trial;

    /// The program's number is the output, without a label there is one output.
    #[test]
    fn the_value_of_a_program_chooses_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("first.fpl");
        std::fs::write(&program, "RETURN PKT.B[0];\n").unwrap();
        let shares = |label: &str| {
            let text = format!(
                "s :: switch(by=label); file(\"in\") -> fpl(\"{}\", label={label}) -> s; s[0] -> json; s[1] -> json; s[3] -> json",
                program.display()
            );
            let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
            trial.push_frames(&(0..60_u8).map(|number| vec![number % 4; 60]).collect::<Vec<_>>());
            trial.assert_balanced();
            [0, 1, 2].map(|end| trial.arrived_at(end).len())
        };
        assert_eq!(shares("yes"), [0, 15, 15], "0 is refused, and 2 leads nowhere");
        assert_eq!(shares("no"), [45, 0, 0]);
    }

    #[test]
    fn greater_numbers_share_the_greatest_label() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sum.fpl");
        std::fs::write(&program, "RETURN PKT.B[0] + 254;\n").unwrap();
        let text = format!(
            "s :: switch(by=label); file(\"in\") -> fpl(\"{}\", label=yes) -> s; s[1] -> json; s[254] -> json; s[255] -> json",
            program.display()
        );
        let mut trial = Trial::graph(&text).unwrap_or_else(|why| panic!("{why}"));
        trial.push_frames(&[0_u8, 1, 2, 3].map(|first| vec![first; 60]));
        trial.assert_balanced();
        assert_eq!([0, 1, 2].map(|end| trial.arrived_at(end).len()), [0, 1, 3]);
    }
}
