//! The abilities of the disk, and its pages in memory.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Bytes that fio writes, in MiB.
const MIB: u64 = 1024;

/// Bytes a second that fio writes in order, past the page cache; `None` without fio.
pub(super) fn direct_write(folder: &Path) -> Result<Option<f64>> {
    let file = folder.join("fio");
    let mut command = Command::new("fio");
    command.args(["--name=write", "--rw=write", "--direct=1", "--bs=1M", "--output-format=json"]);
    command.args([format!("--size={MIB}M"), format!("--filename={}", file.display())]);
    let Ok(output) = command.stdin(Stdio::null()).output() else { return Ok(None) };
    ensure!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr).trim());
    fs::remove_file(&file)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let start = text.find('{').context("fio wrote no JSON")?;
    let value: Value = serde_json::from_str(&text[start..]).context("fio's JSON")?;
    let rate = value["jobs"][0]["write"]["bw_bytes"].as_f64();
    Ok(Some(rate.context("fio's JSON has no bandwidth")?))
}

/// Makes the kernel drop the cached pages of the files below a folder, so that a search reads them from the disk.
pub(super) fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            forget(&path)?;
            continue;
        }
        // dd gives the whole file POSIX_FADV_DONTNEED where it is to read nothing. What is not on the disk yet stays.
        let file = format!("if={}", path.display());
        let synced = Command::new("sync").arg(&path).status()?.success();
        let words = [&file, "of=/dev/null", "iflag=nocache", "count=0", "status=none"];
        if !synced || !Command::new("dd").args(words).status()?.success() {
            bail!("sync and dd cannot have the kernel forget {}", path.display());
        }
    }
    Ok(())
}
