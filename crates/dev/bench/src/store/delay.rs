//! Delay until an arrived packet is found, while the recorder records.

use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tapline_measure::runs::median;
use tapline_measure::system::trial::{Load, send};

use super::Bench;
use super::recorders::Recorder;
use super::table::Goal;
use crate::live::interrupt;

/// Packets that are looked for, one after the other.
const TIMES: u16 = 10;
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let folder = bench.path("delay");
    fs::create_dir(&folder)?;
    let said = File::create(folder.join("said"))?;
    let words = Recorder::Tapline.command(&bench.tapline, &folder, 128)?;
    let mut command = bench.arena.namespace().command(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
    let mut child = command.spawn().context("starting tapline record")?;
    bench.arena.wait_for_receiver(|| Ok(child.try_wait()?.is_none()))?;
    sleep(Duration::from_millis(500));
    let mut delays = Vec::new();
    for number in 0..TIMES {
        // Other moments of the recorder's own clock.
        sleep(Duration::from_millis(170));
        delays.push(delay_ms(bench, 7000 + number)?);
    }
    interrupt(&child)?;
    ensure!(child.wait()?.success(), "tapline record: {}", fs::read_to_string(folder.join("said"))?);
    fs::remove_dir_all(&folder)?;
    let longest = delays.iter().copied().fold(0.0, f64::max);
    bench.table.note(format!(
        "delay: {:.0} ms at the median, {longest:.0} ms at most",
        median(delays.iter().copied())
    ));
    bench.table.row("delay", "tapline", "ms", delays);
    bench.table.judge(
        "delay",
        "milliseconds until a packet is found, at most",
        Some(longest),
        Goal::AtMost(1000.0),
    );
    Ok(())
}

/// Sends a packet to a port of its own, and searches until it is found: from when it was sent to when the search ended.
fn delay_ms(bench: &mut Bench<'_>, port: u16) -> Result<f64> {
    let traffic = format!("udp dport={port}");
    let time = Duration::from_millis(1);
    let load = Load { traffic: &traffic, size: "100", rate: Some(1000), time, queue_timeout: Duration::ZERO };
    let sent = send(&mut bench.arena, &bench.tapline, &load)?;
    let start = Instant::now();
    ensure!(sent.sent == 1, "{} packets were sent", sent.sent);
    while start.elapsed() < PATIENCE {
        let mut command = Command::new(&bench.tapline);
        command
            .arg("find")
            .arg(bench.path("delay/store"))
            .args(["--count", "--json"])
            .arg(format!("port {port}"));
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "tapline find: {}", String::from_utf8_lossy(&output.stderr).trim());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let value: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
        if value["account"]["outputs"][0]["written"] == 1 {
            return Ok(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    anyhow::bail!("a packet was not found within {PATIENCE:?}")
}
