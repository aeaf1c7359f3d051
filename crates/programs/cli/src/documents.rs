//! The documents show command lines, graphs and rules that the program takes. Their examples with output run in
//! `tests/files/docs.rs`.

use std::collections::BTreeSet;
use std::fs;

use clap::{ArgMatches, Command, CommandFactory};
use tapline_daemon::Rules;
use tapline_filter::Options;
use tapline_testkit::documents::{self, Block, Document};

/// Each command line of `tapline` in a code block or in the examples of -h and --help: its place, and its words.
fn command_lines() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    examples_of_help(&crate::Cli::command(), &mut found);
    for (path, text) in crate::help::SCREENS {
        let lines = text.lines().map(|line| (line, documents::command(line, "tapline")));
        found.extend(lines.filter_map(|(line, words)| Some((format!("{path} -h: {line}"), words?))));
    }
    for document in documents::all() {
        for block in document.blocks().into_iter().filter(|block| block.kind != "picture") {
            let lines = block.lines.iter().enumerate();
            found.extend(lines.filter_map(|(at, line)| {
                let place = format!("{}:{}: {line}", document.name, block.line + at);
                Some((place, documents::command(line, "tapline")?))
            }));
        }
    }
    found
}

fn examples_of_help(command: &Command, found: &mut Vec<(String, Vec<String>)>) {
    let help = [command.get_after_help(), command.get_after_long_help()].into_iter().flatten();
    // A command may go on in the next line.
    let joined = |text: &str| text.split(" \\\n").map(str::trim_start).collect::<Vec<_>>().join(" ");
    let whole = help.map(|text| joined(&text.to_string())).collect::<Vec<_>>().join("\n");
    for line in whole.lines() {
        let words = documents::command(line, "tapline");
        found.extend(words.map(|words| (format!("{} --help: {line}", command.get_name()), words)));
    }
    command.get_subcommands().for_each(|below| examples_of_help(below, found));
}

/// The matches of the last subcommand.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

/// Values of an argument of text; none if the command has no such argument.
fn values(matches: &ArgMatches, name: &str) -> Vec<String> {
    let values = matches.try_get_many::<String>(name).ok().flatten();
    values.into_iter().flatten().cloned().collect()
}

/// Parses a command line. Returns the name of its command, or the program's error.
fn command_of(words: &[String]) -> Result<String, String> {
    let matches = crate::Cli::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
    let below = innermost(&matches);
    let filter = values(below, "filter").join(" ");
    if matches.subcommand_name() == Some("top") {
        tapline_pages::FilterLine::parse(&filter)?;
        return Ok("top".to_owned());
    }
    let filter = match tapline_stages::split_names(&filter)? {
        Some((filter, _)) => filter,
        None => filter,
    };
    match tapline_filter::compile(&filter, &Options::default()).map_err(|error| error.to_string()) {
        // Examples of filters that are refused.
        Err(error)
            if matches.subcommand_name() != Some("filter") && !error.contains("rejects all packets") =>
        {
            return Err(format!("{filter}: {error}"));
        }
        _ => {}
    }
    for graph in values(below, "text") {
        tapline_graph::language::parse(&graph).map_err(|error| error.render(&graph))?;
    }
    Ok(matches.subcommand_name().unwrap_or_default().to_owned())
}

#[test]
fn command_lines_of_documents_are_taken() {
    let (mut commands, mut faults) = (BTreeSet::new(), Vec::new());
    let lines = command_lines();
    for (place, words) in &lines {
        match command_of(words) {
            Ok(command) => drop(commands.insert(command)),
            Err(error) => faults.push(format!("{place}\n{error}")),
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n\n{}", faults.len(), lines.len(), faults.join("\n"));
    assert!(lines.len() > 120, "{} command lines", lines.len());
    // Each command has one.
    for command in crate::Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(commands.contains(command.get_name()), "no document shows tapline {}", command.get_name());
    }
}

fn document(name: &str) -> Document {
    documents::all().into_iter().find(|document| document.name == name).expect(name)
}

fn toml_of(name: &str) -> Vec<Block> {
    document(name).blocks().into_iter().filter(|block| block.kind == "toml").collect()
}

/// Rules from text.
fn rules(text: &str) -> Result<Rules, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rules.toml");
    fs::write(&path, text).expect("a file");
    Rules::read(&path).map_err(|error| error.to_string())
}

#[test]
fn rules_of_the_documents_are_taken() {
    let blocks = toml_of("docs/serve.md");
    let text = |block: &Block| block.lines.join("\n");
    let whole = blocks.iter().map(text).find(|text| text.contains("[[capture]]")).expect("a capture");
    for block in &blocks {
        let own = text(block);
        // A table alone stands behind the others, in place of one of its kind.
        let kind = own.strip_prefix("[[").and_then(|rest| rest.split(']').next());
        let all = match kind {
            Some(kind) if own != whole => {
                let others: Vec<&str> =
                    whole.split("\n[[").filter(|table| !table.starts_with(kind)).collect();
                format!("{}\n{own}", others.join("\n[["))
            }
            _ => own,
        };
        rules(&all).unwrap_or_else(|error| panic!("docs/serve.md:{}: {error}\n{all}", block.line));
    }
}

/// The keys of a table of rules, taken from the error for an unknown key; empty if it is not a table.
fn keys_of(table: &str) -> Vec<String> {
    let error = rules(&format!("{table}no-such-key = 1")).expect_err("no such key");
    let known = error.split_once("expected one of ").map_or("", |(_, known)| known);
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Each key of rules that takes numbers has its unit in docs/units.md.
#[test]
fn numbers_of_rules_have_units_in_the_docs() {
    let page = document("docs/units.md").text;
    let mut count = 0;
    let below: Vec<String> = keys_of("").iter().map(|key| format!("[[{key}]]\n")).collect();
    for table in [String::new()].iter().chain(&below) {
        for key in keys_of(table) {
            let is_number =
                !rules(&format!("{table}{key} = 1")).is_err_and(|error| error.contains("TOML parse error"));
            if is_number {
                assert!(page.contains(&format!("`{key}`")), "docs/units.md lacks the unit of {table}{key}");
                count += 1;
            }
        }
    }
    assert!(count >= 8, "{count} keys");
}

/// Faults of a file of options.
fn faults_of_options(text: &str) -> Vec<String> {
    use tapline_config::{Layers, Places, effective, scopes};
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tapline.toml");
    fs::write(&path, text).expect("a file");
    let program = crate::Cli::command();
    match Layers::read(&&program, &Places::only(&path), []) {
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
        Ok(layers) => {
            let faults = scopes(&program)
                .into_iter()
                .filter_map(|scope| effective(&program, &layers, &scope, None).err());
            faults.map(|fault| fault.to_string()).collect()
        }
    }
}

/// A file of the packages with each commented option in force.
fn in_force(name: &str) -> String {
    let text = fs::read_to_string(std::path::Path::new(documents::ROOT).join("contrib/packages").join(name))
        .expect(name);
    let is_option = |line: &str| line.contains(" = ") || line.starts_with('[');
    let line = |line: &str| match line.strip_prefix("# ") {
        Some(option) if is_option(option) => option.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn options_of_the_documents_are_taken() {
    for name in ["docs/configuration.md", "docs/metrics.md"] {
        let blocks = toml_of(name);
        assert!(!blocks.is_empty(), "{name}");
        for block in blocks {
            assert_eq!(
                faults_of_options(&block.lines.join("\n")),
                Vec::<String>::new(),
                "{name}:{}",
                block.line
            );
        }
    }
}

#[test]
fn files_of_the_packages_are_taken() {
    for name in ["tapline.toml", "vendor.toml"] {
        let text = in_force(name);
        assert!(text.contains("\n[metrics]"), "{text}");
        assert_eq!(faults_of_options(&text), Vec::<String>::new(), "{text}");
    }
    let text = in_force("serve.toml");
    assert!(text.contains("\n[[capture]]") && text.contains("\nworkers = 1"), "{text}");
    rules(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // Each key that there is stands in it.
    for table in ["", "[[capture]]\n", "[[access]]\n"] {
        for key in keys_of(table).iter().filter(|key| {
            !["capture", "record", "publish", "access", "file", "netns"].contains(&key.as_str())
        }) {
            assert!(text.contains(&format!("\n{key} = ")), "{table}{key}");
        }
    }
}
