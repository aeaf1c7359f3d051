//! The files that the browser gets: those of others as they were published, and nothing inline or foreign in ours.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("the assets").flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn vendored_files_are_those_that_were_checked() {
    let vendor = folder().join("vendor");
    let sums = fs::read_to_string(vendor.join("SHA256SUMS")).expect("the sums");
    let mut listed = Vec::new();
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").expect("a sum and a name");
        let digest = Sha256::digest(fs::read(vendor.join(name)).expect(name));
        let found: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
        listed.push(vendor.join(name));
    }
    let lists = ["SHA256SUMS", "VERSIONS"].map(|name| vendor.join(name));
    let unlisted = files(&vendor).into_iter().filter(|path| !listed.contains(path) && !lists.contains(path));
    assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<PathBuf>::new(), "files without a sum");
    for library in ["uplot", "preact", "htm"] {
        assert!(vendor.join(library).join("LICENSE").is_file(), "{library} has its licence");
    }
}

#[test]
fn pages_have_no_inline_and_no_foreign_content() {
    for path in files(&folder()).iter().filter(|path| !path.starts_with(folder().join("vendor"))) {
        let text = fs::read_to_string(path).expect("text");
        for wrong in
            ["innerHTML", "dangerouslySet", "document.write", "eval(", " style=", "onclick=", "https://"]
        {
            assert!(!text.contains(wrong), "{wrong} in {}", path.display());
        }
    }
}
