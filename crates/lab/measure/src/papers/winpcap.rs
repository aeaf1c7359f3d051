//! The tests of WinPcap of the year 2000: filters, receive and discard, to disk; the kernel's buffer; file systems.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tapline_arena::netns::has_program;

use super::rig::{Order, Rig, over};
use super::section::{Figure, Findings};
use crate::system::programs::Program;
use crate::system::trial::TrialOutcome;

/// Packets a second of the tests: 101 bytes at the most that the sender made.
const RATE: u64 = 67_000;
const PERCENT: [f64; 2] = [0.0, 100.0];
/// Load of the receiving processor.
const LOAD: [f64; 2] = [0.01, 100.0];
/// Bytes of an image on which a file system is made.
const IMAGE: u64 = 2 << 30;

/// Load of the receiving processor by the kernel's part and the program, in percent.
fn load(run: &TrialOutcome) -> Option<f64> {
    Some((run.kernel_ns + run.program_ns) as f64 / (run.seconds * 1e7))
}

fn share(run: &TrialOutcome) -> Option<f64> {
    Some(run.share() * 100.0)
}

/// Share of the packets that came to the program's ring and were not lost there.
pub(super) fn kept(run: &TrialOutcome) -> Option<f64> {
    Some(100.0 * (run.captured + run.unread) as f64 / (run.received as f64).max(1.0))
}

/// Takes the runs of an order; its failure, or an account that does not balance, goes into `found`.
pub(super) fn runs_of(
    found: &mut Findings,
    program: Program,
    runs: Result<Vec<TrialOutcome>>,
) -> Vec<TrialOutcome> {
    let mut kept = |text: String| {
        if !found.left_out.contains(&text) {
            found.left_out.push(text);
        }
    };
    match runs {
        Err(error) => {
            kept(format!("{}: {error:#}", program.name()));
            Vec::new()
        }
        Ok(runs) => {
            let faults =
                runs.iter().flat_map(|run| &run.faults).map(|fault| format!("{}: {fault}", program.name()));
            // A peer's figures may leave something out; ours may not.
            if program.is_ours() {
                found.faults.extend(faults);
            } else {
                faults.for_each(kept);
            }
            runs
        }
    }
}

/// Returns the programs that are installed here; the others go into `found`.
pub(super) fn present(found: &mut Findings, programs: &[Program]) -> Vec<Program> {
    found.left_out.extend(programs.iter().filter_map(|program| program.absence()));
    programs.iter().copied().filter(|program| program.absence().is_none()).collect()
}

/// Test 1: filters that match nothing.
pub(super) fn filters(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: format!(
            "{RATE} UDP packets of 101 bytes a second; processor time of the kernel's receiving thread and the program on \
             one core; no packet matches."
        ),
        ..Findings::default()
    };
    let programs = present(&mut found, &[Program::Tapline, Program::Tcpdump]);
    for filter in ["tcp", "src host 1.1.1.1 and dst host 2.2.2.2"] {
        let orders: Vec<Order<'_>> = programs
            .iter()
            .map(|&program| Order { filter, ..Order::new(program, 101, Some(RATE)) })
            .collect();
        for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
            let runs = runs_of(&mut found, *program, runs);
            let figure = Figure::new(filter, program.name(), "% of a processor", over(&runs, load), LOAD);
            found.figures.push(figure);
        }
    }
    Ok(found)
}

/// Test 2: receive and discard, by size and by portion copied.
pub(super) fn driver(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: "as fast as the generator can send; kernel's part and program on one core; packets are counted and \
                     discarded."
            .to_owned(),
        ..Findings::default()
    };
    let programs = present(&mut found, &[Program::Tapline, Program::Libpcap]);
    for size in [101, 500, 1514] {
        for snap in [68, 262_144] {
            let orders: Vec<Order<'_>> =
                programs.iter().map(|&program| Order { snap, ..Order::new(program, size, None) }).collect();
            for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
                let runs = runs_of(&mut found, *program, runs);
                let portion = if snap < size { "first 68" } else { "whole" };
                let row = format!("{size} bytes, {portion}");
                let cost = over(&runs, |run| Some(run.cost_ns()));
                found.figures.push(Figure::new(
                    row.clone(),
                    program.name(),
                    "ns a packet",
                    cost,
                    [20.0, 1e5],
                ));
                found.figures.push(Figure::new(
                    row,
                    program.name(),
                    "% received",
                    over(&runs, share),
                    PERCENT,
                ));
            }
        }
    }
    Ok(found)
}

/// Test 3: to disk, 68 bytes of each packet and all of it.
pub(super) fn disk(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: format!("as fast as the generator can send, into a file in {}.", rig.folder.display()),
        ..Findings::default()
    };
    let path = rig.folder.join("captured.pcap");
    let programs = present(&mut found, &[Program::Tapline, Program::Tcpdump, Program::Dumpcap]);
    for (size, snap) in [(101, 68), (101, 262_144), (500, 262_144), (1514, 262_144)] {
        let order =
            |&program: &Program| Order { snap, store: Some(&path), ..Order::new(program, size, None) };
        let orders: Vec<Order<'_>> = programs.iter().map(order).collect();
        for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
            let runs = runs_of(&mut found, *program, runs);
            let row = format!("{size} bytes, {}", if snap < size { "first 68" } else { "whole" });
            // Windows 2000 on NTFS, of 67,000 packets a second.
            let paper = (snap < size).then_some(73.0);
            let figure = Figure::new(row.clone(), program.name(), "% stored", over(&runs, share), PERCENT);
            found.figures.push(figure.paper(paper));
            let rate = over(&runs, |run| Some(run.captured_rate()));
            let figure = Figure::new(row, program.name(), "packets a second", rate, [100.0, 1e8]);
            found.figures.push(figure.paper(paper.map(|share| share / 100.0 * RATE as f64)));
        }
    }
    Ok(found)
}

/// The kernel's buffer against loss.
pub(super) fn buffers(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: "as fast as the generator can send, whole packets of 1514 bytes into a file; of the packets that came \
                     to the program's ring, those that were not lost there."
            .to_owned(),
        ..Findings::default()
    };
    let path = rig.folder.join("captured.pcap");
    let programs = present(&mut found, &[Program::Tapline, Program::Tcpdump]);
    for mib in [1, 4, 16, 64, 256] {
        let order = |&program: &Program| Order {
            ring: mib << 20,
            store: Some(&path),
            ..Order::new(program, 1514, None)
        };
        let orders: Vec<Order<'_>> = programs.iter().map(order).collect();
        for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
            let runs = runs_of(&mut found, *program, runs);
            let figure = Figure::new(
                format!("{mib} MiB"),
                program.name(),
                "% kept in the ring",
                over(&runs, kept),
                PERCENT,
            );
            found.figures.push(figure);
        }
    }
    Ok(found)
}

/// Test 3 again: file systems side by side.
pub(super) fn file_systems(rig: &mut Rig<'_>) -> Result<Findings> {
    let mut found = Findings {
        conditions: "as fast as the generator can send, whole packets of 1514 bytes into a file on a file system that was \
                     made for this, in an image file (loop device); tmpfs is in memory."
            .to_owned(),
        ..Findings::default()
    };
    for kind in ["ext4", "xfs", "tmpfs"] {
        rig.check()?;
        let mounted = match Mounted::new(rig.folder, kind) {
            Ok(mounted) => mounted,
            Err(error) => {
                found.left_out.push(format!("{kind}: {error:#}"));
                continue;
            }
        };
        let path = mounted.folder.join("captured.pcap");
        let programs = present(&mut found, &[Program::Tapline, Program::Tcpdump]);
        let order = |&program: &Program| Order { store: Some(&path), ..Order::new(program, 1514, None) };
        let orders: Vec<Order<'_>> = programs.iter().map(order).collect();
        for (program, runs) in programs.iter().zip(rig.trials(&orders)?) {
            let runs = runs_of(&mut found, *program, runs);
            // Of 67,000 packets a second of 101 bytes: NTFS for a file system with a journal, FAT for one without.
            let paper = if kind == "tmpfs" { 89.0 } else { 73.0 };
            let figure = Figure::new(kind, program.name(), "% stored", over(&runs, share), PERCENT);
            found.figures.push(figure.paper((*program == Program::Tapline).then_some(paper)));
        }
    }
    Ok(found)
}

/// A file system that is mounted while this lives.
struct Mounted {
    folder: PathBuf,
    image: Option<PathBuf>,
}

impl Mounted {
    fn new(folder: &Path, kind: &str) -> Result<Mounted> {
        let mut mounted = Mounted { folder: folder.join(kind), image: None };
        fs::create_dir_all(&mounted.folder)?;
        if kind == "tmpfs" {
            let size = format!("size={IMAGE}");
            call("mount", &["-t", "tmpfs", "-o", &size, "tmpfs", path_text(&mounted.folder)?])?;
            return Ok(mounted);
        }
        let maker = format!("mkfs.{kind}");
        ensure!(has_program(&maker), "{maker} is not installed");
        let image = mounted.image.insert(folder.join(format!("{kind}.image")));
        fs::File::create(&*image)?.set_len(IMAGE)?;
        let quiet = if kind == "xfs" { "-f" } else { "-F" };
        call(&maker, &["-q", quiet, path_text(image)?])?;
        call("mount", &["-o", "loop", path_text(image)?, path_text(&mounted.folder)?])?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was not mounted cannot be unmounted.
        let _ = Command::new("umount").arg(&self.folder).output();
        if let Some(image) = &self.image {
            let _ = fs::remove_file(image);
        }
    }
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("the folder's name is not UTF-8")
}

fn call(program: &str, arguments: &[&str]) -> Result<()> {
    let output =
        Command::new(program).args(arguments).output().with_context(|| format!("starting {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
