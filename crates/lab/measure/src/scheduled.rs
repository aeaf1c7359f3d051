//! Processor time of other processes and of the kernel's threads, as `schedstat` of proc(5) reports it: nanoseconds
//! on a processor first.

use std::fs;
use std::path::Path;

/// Processor time of each thread of a process so far, in nanoseconds; `None` for a thread that has ended;
/// a single `None` without such a process.
pub fn tasks(pid: u32) -> Vec<Option<u64>> {
    match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(tasks) => tasks.map(|task| run_time(&task.ok()?.path())).collect(),
        Err(_) => vec![None],
    }
}

/// Processor time of a thread so far, in nanoseconds; `None` without such a thread, or where the kernel does not count
/// it.
pub fn thread(pid: u32) -> Option<u64> {
    run_time(Path::new(&format!("/proc/{pid}")))
}

/// Times that a thread slept until something came; `None` without such a thread.
pub fn waits(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?.trim().parse().ok()
}

/// Time that each processor was busy and that it has run in all, in units of /proc/stat.
pub fn processors() -> Vec<(u64, u64)> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let times = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().filter(|name| name.starts_with("cpu") && *name != "cpu")?;
        let times: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // Guests' time is part of the first two columns.
        let all: u64 = times.iter().take(8).sum();
        let idle: u64 = times.iter().skip(3).take(2).sum();
        Some((all - idle, all))
    };
    text.lines().filter_map(times).collect()
}

/// Time that all processors together spent in programs, without the kernel's part, in units of /proc/stat; `None` if it
/// cannot be read.
pub fn user_time() -> Option<u64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let mut words = text.lines().next()?.split_whitespace().skip(1);
    let [user, nice] = [words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?];
    Some(user + nice)
}

/// Threads of the kernel whose names begin so, in ascending order.
pub fn kernel_threads(prefix: &str) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_one = |pid: &u32| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(prefix))
    };
    let mut threads: Vec<u32> = numbers.filter(is_one).collect();
    threads.sort_unstable();
    threads
}

fn run_time(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_those_that_are_there() {
        let own = std::process::id();
        let sum = || tasks(own).into_iter().flatten().sum::<u64>();
        let before = sum();
        // Until the clock of the scheduler has gone on.
        while sum() == before {}
        assert_eq!((tasks(u32::MAX), thread(u32::MAX)), (vec![None], None));
        assert!(waits(own).is_some() && waits(u32::MAX).is_none());
        assert!(processors().iter().all(|(busy, all)| busy <= all) && !processors().is_empty());
        assert!(thread(own).is_some() && kernel_threads("no thread is called so").is_empty());
    }
}
