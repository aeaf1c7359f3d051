//! Reference pages of the documents, written from the command line and the catalog of stages that the program has:
//! `make reference` writes them, and a test compares them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference");

/// The introduction of each page.
const WRITTEN: &str = "`make reference` writes this page from the program.";

fn options_page() -> String {
    let mut page = format!(
        "# Options\n\nEvery command with its options, as `--help` has them. {WRITTEN}\n\
         Numbers take the units of [units.md](../units.md), and defaults may come from [files](../configuration.md).\n"
    );
    let mut program = crate::Cli::command();
    program.build();
    commands(&program, &mut page);
    page
}

/// Writes a command and those below it.
fn commands(command: &Command, page: &mut String) {
    let below: Vec<&Command> = command
        .get_subcommands()
        .filter(|below| below.get_name() != "help" && !below.is_hide_set())
        .collect();
    let is_shown = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let rows: Vec<String> = command.get_arguments().filter(is_shown).map(row).collect();
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    if !rows.is_empty() || below.is_empty() {
        let about = command.get_about().map(|about| in_one_line(&about.to_string())).unwrap_or_default();
        let _ = write!(page, "\n## {name}\n\n{about}.\n");
    }
    if !rows.is_empty() {
        let _ = write!(page, "\n| option | meaning |\n|---|---|\n{}", rows.concat());
    }
    below.into_iter().for_each(|below| commands(below, page));
}

/// The row of an option or operand.
fn row(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.to_string()).collect();
    let takes_value = arg.get_action().takes_values();
    let shown = match (arg.get_short(), arg.get_long()) {
        (None, None) => values.join(" "),
        (short, long) => {
            let names = [short.map(|short| format!("-{short}")), long.map(|long| format!("--{long}"))];
            let names = names.into_iter().flatten().collect::<Vec<_>>().join("`, `");
            if takes_value { format!("{names} {}", values.join(" ")) } else { names }
        }
    };
    let help = arg.get_long_help().or(arg.get_help()).map(|help| help.to_string()).unwrap_or_default();
    let mut meaning = in_one_line(&help);
    let choices = arg.get_possible_values();
    if takes_value && !choices.is_empty() && !arg.is_hide_possible_values_set() {
        let names: Vec<_> = choices
            .iter()
            .filter(|choice| !choice.is_hide_set())
            .map(|choice| format!("`{}`", choice.get_name()))
            .collect();
        let _ = write!(meaning, " Values: {}.", names.join(", "));
    }
    let defaults = arg.get_default_values();
    if takes_value && !defaults.is_empty() && !arg.is_hide_default_value_set() {
        let defaults: Vec<_> =
            defaults.iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
        let _ = write!(meaning, " Default: {}.", defaults.join(", "));
    }
    format!("| `{shown}` | {} |\n", meaning.replace('|', "\\|").replace('<', "&lt;"))
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn stages_page() -> String {
    let catalog = crate::run::catalog();
    let mut page = format!(
        "# Stages\n\nEvery class of stages of a [graph](../graph.md), as `tapline run --stages NAME` describes it.\n\
         {WRITTEN}\n\n```synopsis\n{}```\n",
        catalog.index()
    );
    let mut classes = catalog.classes().to_vec();
    classes.sort_by_key(|class| class.name);
    for class in classes {
        let text = tapline_graph::catalog::page(class);
        let _ = write!(page, "\n## {}\n\n```synopsis\n{}\n```\n", class.name, text.trim_end());
    }
    page
}

fn elements_page() -> String {
    format!(
        "# Elements of flow records\n\nEvery element that `--template` of `probe` and `collect-flows` accepts, by name; \
         [flows.md](../flows.md#records)\nexplains templates and details. {WRITTEN}\n\n\
         *number*: by IANA's registry of IPFIX elements; with a star by Tapline's enterprise number (32473 unless\n\
         `--enterprise` gives another); `6871/` is CERT's. *filled*: when a flow has the value. *collected* means flows\n\
         that a router reported to `collect-flows`. A value that a flow lacks is absent in JSON, empty in CSV, and 0 or\n\
         empty in IPFIX.\n\n{}",
        tapline_flow::export::Element::reference()
    )
}

fn metrics_page() -> String {
    format!(
        "# Metrics\n\nEvery metric that [`tapline metrics`](../metrics.md) writes, with its labels.\n{WRITTEN}\n\n{}",
        tapline_metrics::reference()
    )
}

#[test]
fn reference_pages_are_those_of_the_program() {
    if cfg!(any(feature = "arrow", feature = "kafka", feature = "parquet")) {
        return eprintln!(
            "skipped: reference_pages_are_those_of_the_program: the pages are of the default features"
        );
    }
    let is_written = std::env::var_os("TAPLINE_WRITE_REFERENCE").is_some();
    let pages = [
        ("elements.md", elements_page()),
        ("metrics.md", metrics_page()),
        ("options.md", options_page()),
        ("stages.md", stages_page()),
    ];
    for (name, page) in pages {
        let path = Path::new(FOLDER).join(name);
        if is_written {
            fs::write(&path, &page).expect("the folder of the documents can be written");
        }
        let present = fs::read_to_string(&path).unwrap_or_default();
        assert!(present == page, "docs/reference/{name} is not that of the program: make reference");
    }
}
