//! Every option with a number takes it as docs/units.md says; an option that does not is named here.

use std::any::TypeId;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, Command, CommandFactory};

/// Options with units of tcpdump's own.
const OF_TCPDUMP: [(&str, char); 2] = [("capture", 'C'), ("generate", 'C')];
/// Value names that are not amounts: a new option has one of these value names, or one of those in [`forms`].
const NO_AMOUNTS: &str = "ADDRESS ADDRESSES AFTER BEFORE CELL=VALUE CLASS COLUMNS COMMAND DIR DIR,SIZE FIELDS FILE FILES FILE|DIR FILTER FOLDER FORMAT GRAPH GROUPS HOW IFACE INTERFACE KEYS \
     LIMITS MODE NAME NAMES NAME=FILE NUMBERS OLD=NEW OPTION PATH PATTERN PID POLICY RECIPE RIGHTS SHELL STAGE STORE TEXT TO TYPE UNIT USER VERSION WHEN \
     WORKLOAD X in|out|inout pause|resume zstd[:LEVEL]";

/// Values of one kind: of each row of `accepted` one, whatever the option's range; of `refused` none.
struct Forms {
    accepted: &'static [&'static [&'static str]],
    refused: &'static [&'static str],
}

const TIME: Forms =
    Forms { accepted: &[&["90"], &["1.5s"], &["90000us"], &["0.5m"]], refused: &["5x", "1 s", "s", "1M"] };
const SIZE: Forms = Forms {
    accepted: &[&["1k", "1M", "0.1k"], &["1Ki", "1Mi", "0.125Ki"], &["1kB", "1MB", "0.1kB"]],
    refused: &["1m", "1g", "1kk", "B", "1 k"],
};
const COUNT: Forms =
    Forms { accepted: &[&["10", "100"], &["0.01k", "0.1k"]], refused: &["1m", "64Ki", "x", "1.5", "k"] };
const WAKE: Forms =
    Forms { accepted: &[&["256,20ms"], &["1,1s"]], refused: &["256", "x,20ms", "256,20x", ",", "0,20ms"] };
const RATE: Forms = Forms { accepted: &[&["10k"], &["1.5Mbit"], &["10kpps"]], refused: &["10x", "0", "1m"] };

/// Accepted forms of an option by its value name; options named for a unit take a count of it.
fn forms(name: &str) -> Option<&'static Forms> {
    match name {
        "TIME" | "TIME|all" => Some(&TIME),
        "SIZE" | "[FILTER=]SIZE" | "BYTES" => Some(&SIZE),
        "N" | "KIB" | "MIB" | "US" | "MS" | "SECONDS" => Some(&COUNT),
        "PACKETS,TIME" => Some(&WAKE),
        "RATE" => Some(&RATE),
        _ => None,
    }
}

fn is_number(argument: &Arg) -> bool {
    let id = argument.get_value_parser().type_id();
    [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<f64>(),
        TypeId::of::<Duration>(),
    ]
    .iter()
    .any(|number| id == *number)
}

/// Whether the parser of the option takes the value; other options may be missing.
fn takes(path: &[String], argument: &Arg, value: &str) -> bool {
    let mut line = path.to_vec();
    match argument.get_long() {
        Some(long) => line.push(format!("--{long}={value}")),
        None => line.extend([format!("-{}", argument.get_short().expect("a name")), value.to_owned()]),
    }
    let result = crate::Cli::command().try_get_matches_from(line);
    result.err().is_none_or(|error| error.kind() != ErrorKind::ValueValidation)
}

/// Checks the options of a command and of those below it; returns how many had units.
fn check(path: &[String], command: &Command) -> usize {
    let mut count = 0;
    for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
        let name = argument.get_value_names().and_then(<[_]>::first).map_or("", |name| name.as_str());
        let shown = format!("{} {argument}", path.join(" "));
        let of_tcpdump = OF_TCPDUMP.iter().any(|(command, short)| {
            path.last().is_some_and(|last| last == command) && argument.get_short() == Some(*short)
        });
        let is_choice = !argument.get_possible_values().is_empty();
        if of_tcpdump || is_choice || argument.is_hide_set() {
            continue;
        }
        let Some(forms) = forms(name) else {
            assert!(NO_AMOUNTS.split(' ').any(|known| known == name), "{shown}: is {name:?} an amount?");
            assert!(
                !is_number(argument) || matches!(name, "X" | "PID"),
                "{shown}: a number of no known kind"
            );
            continue;
        };
        for row in forms.accepted {
            assert!(row.iter().any(|value| takes(path, argument, value)), "{shown} takes none of {row:?}");
        }
        for value in forms.refused {
            assert!(!takes(path, argument, value), "{shown} takes {value}");
        }
        count += 1;
    }
    let commands = command.get_subcommands().filter(|below| below.get_name() != "help");
    let below = commands.map(|below| check(&[path, &[below.get_name().to_owned()]].concat(), below));
    count + below.sum::<usize>()
}

#[test]
fn every_option_has_the_units_of_the_docs() {
    let mut command = crate::Cli::command();
    // Values that an option takes by default are known once the command is built.
    command.build();
    let count = check(&["tapline".to_owned()], &command);
    assert!(count > 50, "{count} options with units were found");
}
