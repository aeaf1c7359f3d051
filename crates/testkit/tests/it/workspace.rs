//! The workspace is built as ARCHITECTURE.md says: its table of crates lists each crate after those that it depends on.

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
    for (at, name) in order.iter().enumerate() {
        for dependency in dependencies(name) {
            assert!(
                order[..at].contains(&dependency),
                "ARCHITECTURE.md lists `{name}` before `{dependency}`, and crates/{name}/Cargo.toml depends on it"
            );
        }
    }
}

#[test]
fn the_table_lists_every_crate_once() {
    let order = crates_of_the_table();
    let listed: BTreeSet<String> = order.iter().cloned().collect();
    assert_eq!(listed.len(), order.len(), "ARCHITECTURE.md lists a crate twice: {order:?}");
    let folders = fs::read_dir(root().join("crates")).expect("crates/ of the repository");
    let with_manifest = folders.flatten().filter(|folder| folder.path().join("Cargo.toml").is_file());
    let present: BTreeSet<String> =
        with_manifest.map(|folder| folder.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(listed, present, "left: the table of ARCHITECTURE.md; right: the folders in crates/");
}

#[test]
fn no_product_crate_depends_on_testkit() {
    for name in crates_of_the_table().iter().filter(|name| !TOOLS.contains(&name.as_str())) {
        for tool in TOOLS {
            assert!(
                !dependencies(name).contains(tool),
                "crates/{name}/Cargo.toml: `tapline-{tool}` is for tests and developers; it belongs to [dev-dependencies]"
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// First cells of the table under `## Crates`.
fn crates_of_the_table() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, from) = text.split_once("\n## Crates\n").expect("a section on crates");
    let section = from.split("\n## ").next().unwrap_or_default();
    let name = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(name).collect()
}

/// Crates of the workspace that a crate needs when it is built without its tests: of every platform, optional ones too.
fn dependencies(name: &str) -> BTreeSet<String> {
    let path = root().join("crates").join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let manifest: Table = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flatten();
    let tables = platforms.filter_map(|(_, platform)| platform.as_table()).chain([&manifest]);
    let kinds = tables.flat_map(|table| [table.get("dependencies"), table.get("build-dependencies")]);
    let names = kinds.flatten().filter_map(Value::as_table).flat_map(Table::keys);
    names.filter_map(|key| key.strip_prefix("tapline-")).map(str::to_owned).collect()
}
