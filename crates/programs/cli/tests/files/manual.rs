//! Man pages and completions: of every command, whole, and understood by their readers.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::support::{Finished, finish, program_or_skip, run, tapline};

/// Commands that `tapline --help` lists.
fn commands() -> BTreeSet<String> {
    let help = String::from_utf8(run(["--help"]).succeeded().stdout).unwrap();
    let list = help.split("Look:\n").nth(1).expect("groups of commands").split("Options:\n").next().unwrap();
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .filter(|name| name != "help")
        .collect()
}

#[test]
fn every_command_has_a_man_page() {
    const TEST: &str = "every_command_has_a_man_page";
    let folder = tempfile::tempdir().unwrap();
    finish(tapline(["manual", "--pages"]).arg(folder.path())).succeeded();
    let commands = commands();
    assert!(commands.len() > 15, "{commands:?}");
    for command in &commands {
        let page = folder.path().join(format!("man1/tapline-{command}.1"));
        let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(text.contains(".SH NAME") && text.contains(".SH OPTIONS"), "{text}");
    }
    if !program_or_skip(TEST, "man") {
        return;
    }
    let files = |section: &str| fs::read_dir(folder.path().join(section)).unwrap();
    for page in ["man1", "man5", "man7"].into_iter().flat_map(files) {
        let path = page.unwrap().path();
        let warned = finish(
            Command::new("man")
                .env("MANROFFSEQ", "")
                .args(["--warnings", "-l"])
                .arg(&path)
                .env("LC_ALL", "C.UTF-8"),
        );
        assert!(warned.stderr.is_empty(), "{}: {}", path.display(), warned.stderr);
    }
}

#[test]
fn completions_are_scripts_of_their_shells() {
    const TEST: &str = "completions_are_scripts_of_their_shells";
    let script = |shell: &str| -> Finished { run(["manual", "--completions", shell]).succeeded() };
    let commands = commands();
    for shell in ["bash", "zsh", "fish"] {
        let finished = script(shell);
        let text = String::from_utf8(finished.stdout).unwrap();
        for command in &commands {
            assert!(text.contains(command.as_str()), "{shell}: no {command}");
        }
        if program_or_skip(TEST, shell) {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), &text).unwrap();
            finish(Command::new(shell).arg("-n").arg(file.path())).succeeded();
        }
    }
    // The completions that the shell offers.
    let bash_script = tempfile::NamedTempFile::new().unwrap();
    fs::write(bash_script.path(), script("bash").stdout).unwrap();
    for (words, offered) in [("cap", "capture"), ("capture -i l", "lo"), ("run --stages sam", "sample")] {
        let mut bash = Command::new("bash");
        let prepared =
            format!(". \"$0\"; COMP_WORDS=(tapline {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}}-1))");
        let call = "_tapline tapline \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"";
        bash.args(["-c", &format!("{prepared}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")]);
        let finished = finish(bash.arg(bash_script.path())).succeeded();
        let stdout = String::from_utf8_lossy(&finished.stdout).into_owned();
        assert!(stdout.lines().any(|line| line == offered), "{words}: {stdout}");
    }
    for (shell, call) in [("zsh", "_net_interfaces"), ("fish", "(__fish_print_interfaces)")] {
        let text = String::from_utf8(script(shell).stdout).unwrap();
        assert!(text.contains(call) && !text.contains("TAPLINE_INTERFACES"), "{shell}");
    }
}

#[test]
fn a_manual_has_the_requested_pages() {
    run(["manual"]).failed_saying(&["--pages", "--completions"]);
}
