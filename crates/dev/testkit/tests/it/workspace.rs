//! The workspace is built as ARCHITECTURE.md says: its table lists each crate below those that it depends on, folder by
//! folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// Crates that do not ship, so only they may depend on `testkit` outside of tests.
const TOOLS: [&str; 2] = ["testkit", "bench"];

#[test]
fn no_crate_depends_on_one_below_it() {
    let order = crates_of_the_table();
    for (at, member) in order.iter().enumerate() {
        for dependency in member.dependencies() {
            assert!(
                order[..at].iter().any(|above| above.name == dependency),
                "ARCHITECTURE.md lists `{}` before `{dependency}`, and {} depends on it",
                member.name,
                member.manifest()
            );
        }
    }
}

#[test]
fn the_table_lists_every_crate_once() {
    let listed: Vec<String> = crates_of_the_table().iter().map(Crate::manifest).collect();
    let mut present = Vec::new();
    for folder in folders_in(&root().join("crates")) {
        for member in folders_in(&root().join("crates").join(&folder)) {
            let manifest = format!("crates/{folder}/{member}/Cargo.toml");
            if root().join(&manifest).is_file() {
                present.push(manifest);
            }
        }
    }
    let mut sorted = listed.clone();
    sorted.sort();
    present.sort();
    assert_eq!(sorted, present, "left: the table of ARCHITECTURE.md; right: the manifests in crates/");
}

/// The folders of the picture are those of the table, in one order, and each has a README that is read in minutes.
#[test]
fn folders_are_in_the_order_of_the_picture() {
    let boxes = section("The boxes");
    let name = |line: &str| {
        let rest = line
            .strip_prefix("  ")
            .filter(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))?;
        Some(rest.split(' ').next()?.to_owned())
    };
    let pictured: Vec<String> = boxes.lines().filter_map(name).collect();
    assert_eq!(pictured, folders_of_the_table(), "left: the picture of ARCHITECTURE.md; right: its table");
    for folder in &pictured {
        let path = root().join("crates").join(folder).join("README.md");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines = text.lines().count();
        assert!(lines <= 80, "crates/{folder}/README.md has {lines} lines; 80 are the most");
    }
    let lines = architecture().lines().count();
    assert!(lines <= 150, "ARCHITECTURE.md has {lines} lines; 150 are the most");
}

#[test]
fn no_product_crate_depends_on_testkit() {
    for member in crates_of_the_table().iter().filter(|member| !TOOLS.contains(&member.name.as_str())) {
        for tool in TOOLS {
            assert!(
                !member.dependencies().contains(tool),
                "{}: `tapline-{tool}` is for tests and developers; it belongs to [dev-dependencies]",
                member.manifest()
            );
        }
    }
}

/// Checks the rules of `cargo deny check licenses bans`, which most machines do not have.
#[test]
fn dependencies_are_those_that_deny_toml_allows() {
    let text = |name| fs::read_to_string(root().join(name)).expect("a file of the repository");
    let (deny, lock): (Table, Table) =
        (text("deny.toml").parse().expect("TOML"), text("Cargo.lock").parse().expect("TOML"));
    for banned in array(&deny["bans"], "deny") {
        let (crate_name, wrappers) = (text_of(banned, "crate"), strings(banned, "wrappers"));
        for package in lock["package"].as_array().expect("packages") {
            let depends =
                strings(package, "dependencies").iter().any(|one| one.split(' ').next() == Some(crate_name));
            let name = text_of(package, "name");
            assert!(
                !depends || wrappers.contains(&name),
                "`{name}` depends on `{crate_name}`, and deny.toml bans that"
            );
        }
    }
    let features = strings(&deny["graph"], "features").join(",");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--offline",
            "--locked",
            "-p",
            "tapline-cli",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .args(["--features", &features, "--format", "{p}|{l}"])
        .current_dir(root())
        .output()
        .expect("cargo");
    if !tree.status.success() {
        return eprintln!(
            "skipped: dependencies_are_those_that_deny_toml_allows: {}",
            String::from_utf8_lossy(&tree.stderr)
        );
    }
    for line in String::from_utf8_lossy(&tree.stdout).lines().filter(|line| !line.is_empty()) {
        let (package, license) = line.split_once('|').expect("a package and its license");
        let name = package.split(' ').next().unwrap_or_default();
        let mut allowed = strings(&deny["licenses"], "allow");
        for exception in
            array(&deny["licenses"], "exceptions").iter().filter(|one| text_of(one, "crate") == name)
        {
            allowed.extend(strings(exception, "allow"));
        }
        assert!(
            is_allowed(license.trim_end_matches(" (*)"), &allowed),
            "`{name}` has the license `{license}`"
        );
    }
}

/// Whether a choice of licenses (`A OR (B AND C)`) is among the allowed ones. A version and later ones are that version.
fn is_allowed(license: &str, allowed: &[&str]) -> bool {
    let license = license.replace('/', " OR ");
    let flat = |text: &str| text.trim().trim_matches(['(', ')']).trim_end_matches('+').trim().to_owned();
    // In the graph, brackets only stand around choices of licenses that go with another.
    license.split(" AND ").all(|part| part.split(" OR ").any(|one| allowed.contains(&flat(one).as_str())))
}

fn array<'t>(table: &'t Value, key: &str) -> &'t [Value] {
    table.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn strings<'t>(table: &'t Value, key: &str) -> Vec<&'t str> {
    array(table, key).iter().filter_map(Value::as_str).collect()
}

fn text_of<'t>(table: &'t Value, key: &str) -> &'t str {
    table.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// A crate of ARCHITECTURE.md.
struct Crate {
    folder: String,
    name: String,
}

impl Crate {
    fn manifest(&self) -> String {
        format!("crates/{}/{}/Cargo.toml", self.folder, self.name)
    }

    /// Crates of the workspace that this crate needs when it is built without its tests, on every platform and with
    /// every feature.
    fn dependencies(&self) -> BTreeSet<String> {
        let path = root().join(self.manifest());
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let manifest: Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
        let tables = platforms.filter_map(|(_, platform)| platform.as_table()).chain([&manifest]);
        let kinds = tables.flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")]);
        let names = kinds.flatten().filter_map(Value::as_table).flat_map(Table::keys);
        names.filter_map(|key| key.strip_prefix("tapline-")).map(str::to_owned).collect()
    }
}

/// Crates of the table under `## Crates`, whose first cells are `folder/crate`.
fn crates_of_the_table() -> Vec<Crate> {
    let member = |line: &str| {
        let (folder, name) = line.strip_prefix("| `")?.split_once('`')?.0.split_once('/')?;
        Some(Crate { folder: folder.to_owned(), name: name.to_owned() })
    };
    section("Crates").lines().filter_map(member).collect()
}

/// Folders of the table, each once for each block of its crates.
fn folders_of_the_table() -> Vec<String> {
    let mut folders: Vec<String> = crates_of_the_table().into_iter().map(|member| member.folder).collect();
    folders.dedup();
    folders
}

/// A section of ARCHITECTURE.md.
fn section(heading: &str) -> String {
    let text = architecture();
    let (_, from) = text.split_once(&format!("\n## {heading}\n")).expect("the section");
    from.split("\n## ").next().unwrap_or_default().to_owned()
}

fn architecture() -> String {
    fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

fn folders_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
