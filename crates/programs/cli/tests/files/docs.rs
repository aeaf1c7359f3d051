//! Examples of the documents: each command of a `console` block runs, and prints the lines below it.
//!
//! ````text
//! ```console
//! $ tapline capture -r examples/mixed.pcapng -c 1        run by `sh` in a folder of the document's own, with `examples` in it
//! the first line
//! ...                                                    any lines, or none
//! the last line
//! ```
//! ````
//!
//! Standard output and standard error count as one. A command must end with status 0.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tapline_testkit::documents::{self, Document, ROOT};
use tapline_testkit::sample;

use crate::support::{self, TAPLINE, finish, tapline, wait_for};

/// Matches any lines, or none.
const ANY: &str = "...";

/// A command of a document, and the lines below it.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn examples_of(document: &Document) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    for block in document.blocks().iter().filter(|block| block.kind == "console") {
        for (at, line) in block.lines.iter().enumerate() {
            if let Some(command) = line.strip_prefix("$ ") {
                let line = block.line + at;
                found.push(Example { line, command: command.to_owned(), expected: Vec::new() });
            } else {
                let example = found.last_mut().expect("a block begins with a command");
                example.expected.push(line.trim_end().to_owned());
            }
        }
    }
    found
}

/// Whether the output is what is expected, with [`ANY`] for any lines.
fn is_match(expected: &[String], output: &[&str]) -> bool {
    let Some((line, rest)) = expected.split_first() else { return output.is_empty() };
    if line == ANY {
        return (0..=output.len()).any(|at| is_match(rest, &output[at..]));
    }
    output.split_first().is_some_and(|(first, more)| first.trim_end() == line && is_match(rest, more))
}

/// A folder in which the commands of a document run.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    symlink(Path::new(ROOT).join("examples").canonicalize().unwrap(), folder.path().join("examples"))
        .unwrap();
    folder
}

fn run(folder: &Path, command: &str) -> (String, Option<i32>) {
    let programs = Path::new(TAPLINE).parent().expect("a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{{ {command}\n}} 2>&1")]).current_dir(folder).stdin(Stdio::null());
    let output = shell.env("PATH", path).env("TZ", "UTC").env("COLUMNS", "120").output().expect("a shell");
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

#[test]
fn examples_print_the_output_of_the_documents() {
    let (mut count, mut failures) = (0, Vec::new());
    for document in documents::all() {
        let examples = examples_of(&document);
        let folder = folder();
        for example in &examples {
            let (output, status) = run(folder.path(), &example.command);
            let lines: Vec<&str> = output.lines().collect();
            if status != Some(0) || !is_match(&example.expected, &lines) {
                let (name, line) = (&document.name, example.line);
                failures.push(format!("{name}:{line}: {}\n{status:?}\n{output}", example.command));
            }
            count += 1;
        }
    }
    assert!(failures.is_empty(), "{} of {count} examples:\n\n{}", failures.len(), failures.join("\n"));
    assert!(count > 20, "{count} examples");
}

/// Commands that read a file run where the documents do not show their output, too. A sample is used in place of the
/// file.
#[test]
fn commands_that_read_a_file_run() {
    // Servers, stores, parts that a build may lack, and files of a form of their own.
    const OTHERS: [&str; 9] =
        ["://", "store:", "kafka", "parquet", "--arrow", "--rules", "--secrets", ".fpl", "-i "];
    let folder = folder();
    fs::write(folder.path().join("networks.csv"), "network,name\n10.0.0.0/8,lab\n").unwrap();
    let (mut count, mut failures) = (0, Vec::new());
    for document in documents::all() {
        let blocks = document.blocks();
        let unshown = blocks.iter().filter(|block| !["console", "picture"].contains(&block.kind.as_str()));
        let is_other = |line: &&String| OTHERS.iter().any(|other| line.contains(other));
        for line in unshown.flat_map(|block| &block.lines).filter(|line| !is_other(line)) {
            let Some(words) = documents::command(line, "tapline") else { continue };
            let Some(file) = words.iter().skip_while(|word| *word != "-r").nth(1) else { continue };
            if !folder.path().join(file).exists() {
                symlink(sample::STORED, folder.path().join(file)).unwrap();
            }
            let finished = finish(tapline(&words[1..]).current_dir(folder.path()));
            if !finished.status.success() {
                failures.push(format!("{}: {line}\n{}", document.name, finished.stderr));
            }
            count += 1;
        }
    }
    assert!(failures.is_empty(), "{} of {count} commands:\n\n{}", failures.len(), failures.join("\n"));
    assert!(count > 8, "{count} commands");
}

#[test]
fn expected_lines_are_exact_but_for_gaps() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let cases =
        [("a\nb", "a\nb", true), ("a", "a\nb", false), ("...\nb", "a\nb", true), ("...\na\n...", "b", false)];
    for (expected, output, is_right) in cases {
        let output: Vec<&str> = output.lines().collect();
        assert_eq!(is_match(&lines(expected), &output), is_right, "{expected:?}");
    }
    assert!(is_match(&[], &[]) && !is_match(&lines("a"), &[]) && is_match(&lines("..."), &[]));
}

/// Files that people are shown work: each one is named in a command that runs, the rules in the test below.
#[test]
fn every_example_file_is_used() {
    let commands: String =
        documents::all().iter().flat_map(examples_of).map(|example| example.command + "\n").collect();
    let mut unused = BTreeSet::new();
    for folder in ["", "graphs", "fpl", "recipes"] {
        for entry in fs::read_dir(Path::new(ROOT).join("examples").join(folder)).expect("examples").flatten()
        {
            let name = Path::new("examples").join(folder).join(entry.file_name());
            let is_shown = entry.path().is_file() && name != Path::new("examples/README.md");
            if is_shown && !commands.contains(name.to_str().expect("UTF-8")) {
                unused.insert(name);
            }
        }
    }
    assert!(unused.is_empty(), "no document runs {unused:?}");
}

#[test]
fn the_rules_of_the_examples_let_readers_in() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("sample.sock");
    let socket_name = socket.to_str().unwrap();
    let rules = Path::new(ROOT).join("examples/rules");
    let mut serve = tapline(["serve", "--config", "sample.toml", "--socket", socket_name]);
    let mut daemon = serve.current_dir(rules).stderr(Stdio::null()).spawn().expect("it starts");
    wait_for("the socket", || socket.exists());
    let reader =
        ["capture", "-i", "tap:sample", "--socket", socket_name, "--policy", "lossless", "--json", "--count"];
    let account = finish(&mut tapline(reader)).account();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(account.count("delivered") > 300, "{}", account.value);
}

/// Links between documents lead to files of the repository, and to headings that they have.
#[test]
fn links_of_documents_lead_somewhere() {
    let all = documents::all();
    let anchors: HashMap<PathBuf, Vec<String>> =
        all.iter().map(|document| (real_path(&document.name), document.anchors())).collect();
    let (mut count, mut broken) = (0, Vec::new());
    for document in &all {
        let own = real_path(&document.name);
        for link in document.links() {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => Ok(own.clone()),
                file => own.parent().expect("a folder").join(file).canonicalize(),
            };
            let has_heading = |target: &PathBuf| {
                let known = anchors.get(target);
                heading.is_empty() || known.is_some_and(|known| known.iter().any(|anchor| anchor == heading))
            };
            if !target.is_ok_and(|target| has_heading(&target)) {
                broken.push(format!("{}: {link}", document.name));
            }
            count += 1;
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 100, "{count} links");
}

fn real_path(name: &str) -> PathBuf {
    Path::new(ROOT).join(name).canonicalize().expect(name)
}

/// Prose, tables and headings fit into half of a wide window; code blocks may be wider.
#[test]
fn prose_has_at_most_120_columns() {
    let mut wide = Vec::new();
    for document in documents::all() {
        // A row of a table is a line, however long it is.
        let is_wide = |line: &str| line.chars().count() > 120 && !line.starts_with('|');
        let lines = document.prose().into_iter().filter(|(_, line)| is_wide(line));
        wide.extend(lines.map(|(number, _)| format!("{}:{number}", document.name)));
    }
    assert!(wide.is_empty(), "{wide:#?}");
}

/// The book has every page, and its words are explained and used.
#[test]
fn the_book_has_every_page() {
    let all = documents::all();
    let summary =
        all.iter().find(|document| document.name == "docs/SUMMARY.md").expect("the summary").links();
    let is_page = |name: &&str| name.starts_with("docs/") && *name != "docs/SUMMARY.md";
    let left_out: Vec<&str> = all
        .iter()
        .map(|document| document.name.as_str())
        .filter(is_page)
        .filter(|name| !summary.iter().any(|link| format!("docs/{link}") == **name))
        .collect();
    assert!(left_out.is_empty(), "docs/SUMMARY.md lacks {left_out:?}");
}

#[test]
fn words_of_the_glossary_are_used() {
    let all = documents::all();
    let (glossary, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|document| document.name == "docs/glossary.md");
    let text: String = others.iter().map(|document| document.text.to_lowercase()).collect();
    let (mut count, mut unused) = (0, Vec::new());
    for (_, line) in glossary[0].prose() {
        // - word, word (part): explanation
        let Some((words, _)) = line.strip_prefix("- ").and_then(|line| line.split_once(": ")) else {
            continue;
        };
        for word in words.split(" (").next().expect("words").split(", ") {
            count += 1;
            if !text.contains(&word.to_lowercase()) {
                unused.push(word.to_owned());
            }
        }
    }
    assert!(unused.is_empty(), "no document uses {unused:?}");
    assert!(count > 30, "{count} words");
}

/// Kinds of blocks that no test runs, with the reason.
const NOT_RUN: [(&str, &str); 9] = [
    ("picture", "a drawing of parts and paths, or of messages"),
    ("grammar", "the grammar of a language or format; tests of its parser cover the language"),
    ("formula", "sums that accounts are checked for, or steps of a computation, in mathematical notation"),
    ("synopsis", "alternatives and placeholders; --help is made of the same description as the parser"),
    ("output", "of a machine or moment that a test has not: cards, losses, times"),
    ("sh", "commands of other programs, or builds that take minutes"),
    ("yaml", "configuration of other programs"),
    ("rust,ignore", "parts of a program; the documentation of the crate has the whole, which runs as a test"),
    ("json", "read below"),
];
/// Kinds of blocks that tests run or read: here, in `arrow.rs`, `parquet.rs`, and in `documents.rs` of the program.
const TESTED: [&str; 11] =
    ["console", "sql", "python", "toml", "graph", "filter", "fpl", "patterns", "rules", "signatures", "rhai"];

/// Every block is run or read, holds command lines that the program takes, or is of a kind with a reason.
#[test]
fn every_code_block_is_tested_or_has_a_reason() {
    let (mut kinds, mut untested) = (BTreeSet::new(), Vec::new());
    for document in documents::all() {
        for block in document.blocks() {
            // Those without a kind are command lines: `documents.rs` of the program, and tests of `tapline-bench`.
            let has_commands = || {
                block.lines.iter().any(|line| {
                    ["tapline", "tapline-bench"].iter().any(|name| documents::command(line, name).is_some())
                })
            };
            let is_known = match block.kind.as_str() {
                "" => has_commands(),
                kind => TESTED.contains(&kind) || NOT_RUN.iter().any(|(known, _)| *known == kind),
            };
            if !is_known {
                let first = block.lines.first().map_or("", String::as_str);
                untested.push(format!("{}:{} {:?}: {first}", document.name, block.line, block.kind));
            }
            kinds.insert(block.kind);
        }
    }
    assert!(untested.is_empty(), "neither tested nor of a kind with a reason:\n{}", untested.join("\n"));
    for kind in TESTED.iter().chain(NOT_RUN.iter().map(|(kind, _)| kind)) {
        assert!(kinds.contains(*kind), "no document has a block of the kind {kind}");
    }
}

/// Blocks that are read, not run with their output.
#[test]
fn texts_of_the_documents_are_right() {
    let folder = folder();
    let file = folder.path().join("block");
    let name = file.to_str().unwrap();
    let rules = folder.path().join("rules.toml");
    let mut count = 0;
    for document in documents::all() {
        for block in document.blocks() {
            let place = format!("{}:{}", document.name, block.line);
            let text = block.lines.join("\n");
            fs::write(&file, &text).unwrap();
            let command = match (block.kind.as_str(), document.name.as_str()) {
                ("graph", _) => vec!["run", "--check", name],
                ("fpl", _) => vec!["filter", "explain", "--fpl", name],
                // Of a rule, not of a script, whose file is elsewhere.
                ("toml", "docs/watch.md") if !text.contains("[[script]]") => vec!["watch", "check", name],
                ("rhai", "docs/graph.md") if cfg!(feature = "scripts") => {
                    fs::write(&rules, format!("generate(\"udp count=10\") -> script(\"{name}\") -> drop"))
                        .unwrap();
                    vec!["run", rules.to_str().unwrap()]
                }
                ("rhai", _) if cfg!(feature = "scripts") => {
                    fs::write(&rules, "[[script]]\nname = \"block\"\nfile = \"block\"\n").unwrap();
                    vec!["watch", "check", rules.to_str().unwrap()]
                }
                ("toml", "docs/bench.md") => vec!["bench", "--list", name],
                ("patterns", _) => {
                    // A pattern, three blanks, its meaning. The first of the blanks may be the pattern's: `\ `.
                    let pattern = |line: &String| {
                        let pattern = line.split("   ").next().expect("a pattern");
                        format!("{pattern}{}\n", if pattern.ends_with('\\') { " " } else { "" })
                    };
                    let patterns: String = block.lines.iter().map(pattern).collect();
                    tapline_search::Patterns::from_list(patterns.as_bytes())
                        .unwrap_or_else(|error| panic!("{place}: {error}"));
                    vec![]
                }
                ("signatures", _) => {
                    let variables = tapline_signature::Variables::default();
                    let ruleset = tapline_signature::Ruleset::parse(text.as_bytes(), variables);
                    assert_eq!(ruleset.refusals, [], "{place}");
                    assert!(!ruleset.signatures.is_empty(), "{place}");
                    vec![]
                }
                ("rules", _) => {
                    let outputs = ["web", "ids", "reflect"].map(str::to_owned);
                    let rules = tapline_flow_rules::parse(&text, &outputs);
                    rules.unwrap_or_else(|error| panic!("{place}: {}", error.render(&text)));
                    vec![]
                }
                ("json", _) => {
                    let value: Result<serde_json::Value, _> = serde_json::from_str(&text);
                    value.unwrap_or_else(|error| panic!("{place}: {error}"));
                    vec![]
                }
                ("filter", _) => {
                    // A filter, two blanks, its meaning.
                    for line in &block.lines {
                        let filter = line.split("  ").next().expect("a filter");
                        assert!(
                            support::run(["filter", "explain", filter]).status.success(),
                            "{place}: {filter}"
                        );
                    }
                    vec![]
                }
                _ => continue,
            };
            count += 1;
            if !command.is_empty() {
                let finished = support::run(command);
                assert!(finished.status.success(), "{place}: {}", finished.stderr);
            }
        }
    }
    assert!(count >= 6, "{count} blocks");
}
