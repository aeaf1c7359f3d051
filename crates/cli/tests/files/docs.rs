//! Examples of the documents: each command of a `console` block runs, and prints what stands below it.
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

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{TAPLINE, finish, tapline, wait_for};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Stands for any lines, or none.
const ANY: &str = "...";

/// A command of a document, and the lines below it.
struct Example {
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// Markdown files that users read.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    let mut all = vec![root.join("README.md"), root.join("examples/README.md")];
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of documents").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                all.push(path);
            }
        }
    }
    all.sort();
    all
}

fn examples_of(text: &str) -> Vec<Example> {
    let mut found: Vec<Example> = Vec::new();
    let mut is_inside = false;
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_inside = line == "```console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_inside) {
            found.push(Example { line: at + 1, command: command.to_owned(), expected: Vec::new() });
        } else if is_inside {
            let example = found.last_mut().expect("a block begins with a command");
            example.expected.push(line.trim_end().to_owned());
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
    for path in documents() {
        let examples = examples_of(&fs::read_to_string(&path).expect("a document"));
        let folder = folder();
        for example in &examples {
            let (output, status) = run(folder.path(), &example.command);
            let lines: Vec<&str> = output.lines().collect();
            if status != Some(0) || !is_match(&example.expected, &lines) {
                let name = path.strip_prefix(ROOT).unwrap_or(&path).display();
                failures.push(format!("{name}:{}: {}\n{status:?}\n{output}", example.line, example.command));
            }
            count += 1;
        }
    }
    assert!(failures.is_empty(), "{} of {count} examples:\n\n{}", failures.len(), failures.join("\n"));
    assert!(count > 20, "{count} examples");
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
    let commands: String = documents()
        .iter()
        .flat_map(|path| examples_of(&fs::read_to_string(path).expect("a document")))
        .map(|example| example.command + "\n")
        .collect();
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

/// Links between documents lead to files of the repository.
#[test]
fn links_of_documents_lead_somewhere() {
    let root = Path::new(ROOT);
    let mut all = documents();
    all.extend(
        ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "SPECIFICATION.md"]
            .map(|name| root.join(name)),
    );
    let mut broken = Vec::new();
    for path in all {
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next()) {
            let target = link.split('#').next().unwrap_or_default();
            let is_file = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
            if is_file && !path.parent().expect("a folder").join(target).exists() {
                broken.push(format!("{}: {link}", path.strip_prefix(root).unwrap_or(&path).display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
