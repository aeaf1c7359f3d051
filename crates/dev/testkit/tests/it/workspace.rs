//! The workspace is built as ARCHITECTURE.md says: its tables list each crate below those that it depends on, folder by folder.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// Crates that do not ship, so only they may depend on `testkit` outside of tests.
const TOOLS: [&str; 2] = ["testkit", "bench"];

#[test]
fn no_crate_depends_on_one_below_it() {
    let order = crates_of_the_tables();
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
fn the_tables_list_every_crate_once() {
    let listed: Vec<String> = crates_of_the_tables().iter().map(Crate::manifest).collect();
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
    assert_eq!(sorted, present, "left: the tables of ARCHITECTURE.md; right: the manifests in crates/");
}

#[test]
fn no_product_crate_depends_on_testkit() {
    for member in crates_of_the_tables().iter().filter(|member| !TOOLS.contains(&member.name.as_str())) {
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

/// Crates of the tables under `## Crates`: the heading above a table names the folder, the first cells name the crates.
fn crates_of_the_tables() -> Vec<Crate> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, from) = text.split_once("\n## Crates\n").expect("a section on crates");
    let section = from.split("\n## ").next().unwrap_or_default();
    let mut folder = String::new();
    let mut crates = Vec::new();
    for line in section.lines() {
        if let Some(heading) = line.strip_prefix("### `crates/") {
            folder = heading.trim_end_matches('`').to_owned();
        } else if let Some((name, _)) = line.strip_prefix("| `").and_then(|row| row.split_once('`')) {
            crates.push(Crate { folder: folder.clone(), name: name.to_owned() });
        }
    }
    crates
}

fn folders_in(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
