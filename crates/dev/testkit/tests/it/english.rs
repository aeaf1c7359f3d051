//! The English of doc comments and documents: `scripts/english.py` counts words and openings of our old dialect, and no
//! crate has more of them than `scripts/english-budget.txt` allows, nor fewer, so that the budget falls with each edit.

use std::process::Command;

use tapline_testkit::documents::ROOT;

#[test]
fn doc_comments_keep_their_budget() {
    let check = Command::new("python3").args(["scripts/english.py", "--check"]).current_dir(ROOT).output();
    let Ok(check) = check else {
        return eprintln!("skipped: doc_comments_keep_their_budget: no python3 here");
    };
    let text = [check.stdout, check.stderr].concat();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&text));
}
