//! Builds of several commits at the same work: whole commands on the same files, in turns.
//!
//! ```text
//! NAME=PATH ... --> for each task: once by each build (its answer)  --> in turns --> medians, ratios to the first
//! ```
//!
//! Answers are compared: packets of a capture file by number and bytes, all else by its octets. Builds may differ in
//! an answer on purpose, so that is shown and fails nothing. A command that a build does not know is left out for it.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;
use tapline_measure::answer;
use tapline_measure::runs::{self, Run, median};

use crate::report::{Report, Series};
use crate::{Options, file, flows};

/// From this share of the first build's time on, a later build counts as slower.
const SLOWER: f64 = 1.03;

#[derive(Clone, Debug, Args)]
pub(crate) struct VersionsArgs {
    /// A build of `tapline` with its name, such as `945baf9d=/src/old/target/release/tapline`. The first is what others
    /// are compared with; the last makes the files.
    #[arg(required = true, value_name = "NAME=PATH", value_parser = parse_build)]
    builds: Vec<Build>,
    /// Only tasks whose names begin with one of these.
    #[arg(long, value_delimiter = ',')]
    task: Vec<String>,
    /// Size of the file of mixed traffic.
    #[arg(long, default_value = "200M", value_parser = file::parse_size)]
    size: u64,
    /// Packets of each file of flows.
    #[arg(long, default_value_t = 2_000_000)]
    packets: u64,
}

#[derive(Clone, Debug)]
struct Build {
    name: String,
    program: PathBuf,
}

fn parse_build(text: &str) -> Result<Build, String> {
    let (name, path) = text.split_once('=').ok_or("expected NAME=PATH")?;
    let program = PathBuf::from(path);
    if name.is_empty() || path.is_empty() {
        return Err("expected a name and a path".to_owned());
    }
    Ok(Build { name: name.to_owned(), program })
}

/// A command of each build. Words with braces are replaced by paths.
struct Task {
    name: &'static str,
    /// The file whose packets are counted.
    input: Input,
    arguments: &'static str,
    answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Input {
    Mixed,
    Thousand,
    Many,
}

/// Where the answer of a task is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// On standard output.
    Text,
    /// In `{out}`, a capture file.
    Packets,
    /// In `{out}`, which has times of its making: its length counts.
    Length,
    /// A folder, which only has to be there.
    Folder,
}

const TASKS: &[Task] = &[
    task("count", Input::Mixed, "capture -r {in} --count", Answer::Text),
    task(
        "filter",
        Input::Mixed,
        "capture -r {in} -w {out} (tcp and port 443) or (udp and port 53)",
        Answer::Packets,
    ),
    task("copy", Input::Mixed, "capture -r {in} -w {out}", Answer::Packets),
    task("copy of small packets", Input::Many, "capture -r {in} -w {out}", Answer::Packets),
    task("5,000 hosts", Input::Mixed, "capture -r {in} --count -F {hosts}", Answer::Text),
    task("text", Input::Mixed, "capture -n -r {in}", Answer::Text),
    task("text, -v -e", Input::Mixed, "capture -n -v -e -r {in}", Answer::Text),
    task("info", Input::Mixed, "info {in}", Answer::Text),
    task("flows, 1,000", Input::Thousand, "probe -r {in} --export file:{out}", Answer::Length),
    task("flows, 100,000", Input::Many, "probe -r {in} --export file:{out}", Answer::Length),
    task("flows, mixed traffic", Input::Mixed, "probe -r {in} --export file:{out}", Answer::Length),
    task("flows as JSON", Input::Many, "probe -r {in} --export json:{out}", Answer::Length),
    task(
        "flows, details",
        Input::Mixed,
        "probe -r {in} --details tcp,tls,dns --export file:{out}",
        Answer::Length,
    ),
    task("graph", Input::Mixed, "run -e {graph}", Answer::Text),
    task("rules", Input::Mixed, "watch -r {in} --rules {rules}", Answer::Text),
    task("record", Input::Many, "record -r {in} --to {new} --size 1GiB --segment 128MiB", Answer::Folder),
    task(
        "record without index",
        Input::Many,
        "record -r {in} --to {new} --size 1GiB --segment 128MiB --no-index",
        Answer::Folder,
    ),
    task("find a few", Input::Many, "find {store} -w {out} dst net 10.64.7.0/24", Answer::Packets),
    task("find a quarter", Input::Many, "find {store} -w {out} port 443", Answer::Packets),
    task("generate", Input::Many, "generate -w {out} udp size=imix flows=10k count=2M", Answer::Packets),
];

const fn task(name: &'static str, input: Input, arguments: &'static str, answer: Answer) -> Task {
    Task { name, input, arguments, answer }
}

/// Rules for `watch`: one on packets, one on flows.
const RULES: &str = "[[rule]]\nname = \"busy\"\non = \"packet\"\nfilter = \"tcp\"\nby = [\"src\"]\nwindow = \"10s\"\nabove = 100000000\n\n\
                     [[rule]]\nname = \"flows\"\non = \"flow begun\"\nby = [\"src\"]\nwindow = \"10s\"\nabove = 100000000\n";

/// Files that every build reads.
struct Files {
    folder: tempfile::TempDir,
    packets: [u64; 3],
}

impl Files {
    fn make(args: &VersionsArgs, options: &Options, maker: &Path) -> anyhow::Result<Files> {
        let folder = options.folder()?;
        let mixed = file::make_file(&folder.path().join("0"), args.size)?;
        flows::make_file(maker, &folder.path().join("1"), "60", (1_000, args.packets), "1M")?;
        flows::make_file(maker, &folder.path().join("2"), "60", (100_000, args.packets), "1M")?;
        let hosts =
            (0..5_000).map(|n| format!("host 10.{}.{}.7", 200 + n / 250, n % 250)).collect::<Vec<_>>();
        fs::write(folder.path().join("hosts"), hosts.join(" or "))?;
        fs::write(folder.path().join("rules.toml"), RULES)?;
        Ok(Files { folder, packets: [mixed, args.packets, args.packets] })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command of a task, without what an earlier run left.
    fn command(&self, task: &Task, number: usize, build: &Build) -> Command {
        for name in ["out", "new"] {
            let _ = fs::remove_file(self.path(name));
            let _ = fs::remove_dir_all(self.path(name));
        }
        let input = self.path(&(task.input as usize).to_string());
        let mut command = Command::new(&build.program);
        // What follows a file is one argument: a filter, a graph.
        for word in task.arguments.split(' ') {
            match word {
                "{in}" => command.arg(&input),
                "{out}" => command.arg(self.path("out")),
                "file:{out}" => command.arg(format!("file:{}", self.path("out").display())),
                "json:{out}" => command.arg(format!("json:{}", self.path("out").display())),
                "{new}" => command.arg(self.path("new")),
                "{store}" => command.arg(self.path(&format!("store{number}"))),
                "{hosts}" => command.arg(self.path("hosts")),
                "{rules}" => command.arg(self.path("rules.toml")),
                "{graph}" => command
                    .arg(format!("file({:?}) -> filter(\"tcp\") -> count()", input.display().to_string())),
                word => command.arg(word),
            };
        }
        command.current_dir(self.folder.path());
        command
    }

    /// The answer of one run, as a number to compare, or nothing if this build does not know the command.
    fn answer(&self, task: &Task, number: usize, build: &Build) -> anyhow::Result<Option<u64>> {
        let mut command = self.command(task, number, build);
        let output =
            command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))?;
        if output.status.code() == Some(2) {
            return Ok(None);
        }
        let message = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "{command:?}: {}: {}", output.status, message());
        let out = self.path("out");
        Ok(Some(match task.answer {
            Answer::Text => {
                let mut digest = DefaultHasher::new();
                digest.write(&output.stdout);
                digest.finish()
            }
            Answer::Packets => {
                let answer =
                    answer::read(&mut fs::File::open(&out)?).with_context(|| format!("{command:?}"))?;
                ensure!(answer.packets > 0, "{command:?}: no packets in {}", out.display());
                answer.digest
            }
            Answer::Length => fs::metadata(&out)?.len(),
            Answer::Folder => u64::from(self.path("new").is_dir()),
        }))
    }
}

pub(crate) fn run(args: &VersionsArgs, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let last = args.builds.last().context("at least one build is asked for")?;
    for Build { name, program } in &args.builds {
        ensure!(program.is_file(), "{name}: no program at {}", program.display());
    }
    let files = Files::make(args, options, &last.program)?;
    for (number, build) in args.builds.iter().enumerate() {
        let mut record = Command::new(&build.program);
        record
            .args(["record", "-r"])
            .arg(files.path("2"))
            .arg("--to")
            .arg(files.path(&format!("store{number}")));
        let packets = files.packets[Input::Many as usize];
        runs::run(record.args(["--size", "1GiB", "--segment", "128MiB"]), packets)?;
    }
    let is_wanted = |task: &&Task| {
        args.task.is_empty() || args.task.iter().any(|name| task.name.starts_with(name.as_str()))
    };
    let mut rows = Vec::new();
    for task in TASKS.iter().filter(is_wanted) {
        rows.push(measure(task, &files, &args.builds, options, report)?);
    }
    if rows.is_empty() {
        let names: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
        bail!("no task of this name; there are: {}", names.join("; "));
    }
    print!("{}", table(&args.builds, &rows));
    Ok(())
}

/// One task: nanoseconds a packet of each build, or nothing; and whether all answers are the first one's.
struct Row {
    task: &'static str,
    cost: Vec<Option<f64>>,
    agree: bool,
}

fn measure(
    task: &Task,
    files: &Files,
    builds: &[Build],
    options: &Options,
    report: &mut Report,
) -> anyhow::Result<Row> {
    let mut answers = Vec::new();
    for (number, build) in builds.iter().enumerate() {
        answers.push(files.answer(task, number, build)?);
    }
    let known: Vec<usize> = (0..builds.len()).filter(|&number| answers[number].is_some()).collect();
    let names: Vec<&str> = known.iter().map(|&number| builds[number].name.as_str()).collect();
    let mut series = Series::new(format!("versions/{}", task.name), &names, None);
    let packets = files.packets[task.input as usize];
    series.interleave(options.runs, |peer| {
        let number = known[peer];
        runs::run(&mut files.command(task, number, &builds[number]), packets)
    })?;
    report.keep(&series)?;
    let mut cost = vec![None; builds.len()];
    for (&number, (_, runs)) in known.iter().zip(&series.peers) {
        cost[number] = Some(median(runs.iter().map(Run::cpu_ns_per_packet)));
    }
    let mut given = answers.iter().flatten();
    let agree = given.next().is_none_or(|first| given.all(|answer| answer == first));
    Ok(Row { task: task.name, cost, agree })
}

/// All rows, as a table of a document.
fn table(builds: &[Build], rows: &[Row]) -> String {
    let mut text = String::from("| ns a packet |");
    builds.iter().for_each(|build| text += &format!(" {} |", build.name));
    text += &format!(" last by first |\n|---|{}\n", "---|".repeat(builds.len() + 1));
    for row in rows {
        text += &format!("| {} |", row.task);
        for cost in &row.cost {
            text += &cost.map_or(" - |".to_owned(), |cost| format!(" {cost:.1} |"));
        }
        let ratio = row.cost.last().copied().flatten().zip(row.cost.first().copied().flatten());
        text += &match ratio {
            None => " -".to_owned(),
            Some((last, first)) => {
                let mark = if last > first * SLOWER { " slower" } else { "" };
                format!(" {:.2}{mark}", last / first)
            }
        };
        text += if row.agree { " |\n" } else { ", other answers |\n" };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_builds_and_other_answers_are_marked() {
        let builds = ["old", "new"].map(|name| Build { name: name.to_owned(), program: PathBuf::new() });
        let row = |task, cost, agree| Row { task, cost, agree };
        let rows = [
            row("a", vec![Some(100.0), Some(103.1)], true),
            row("b", vec![Some(100.0), Some(50.0)], false),
            row("c", vec![None, Some(50.0)], true),
        ];
        assert_eq!(
            table(&builds, &rows),
            "| ns a packet | old | new | last by first |\n|---|---|---|---|\n\
             | a | 100.0 | 103.1 | 1.03 slower |\n| b | 100.0 | 50.0 | 0.50, other answers |\n| c | - | 50.0 | - |\n"
        );
    }

    #[test]
    fn a_build_is_a_name_and_a_program() {
        assert_eq!(parse_build("a=/bin/sh").unwrap().name, "a");
        assert!(["/bin/sh", "=/bin/sh", "a="].iter().all(|text| parse_build(text).is_err()));
    }
}
