//! Medians, ratios and goals for people; every single run for programs.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use tapline_measure::machine;
use tapline_measure::runs::{RATIOS, Run, judge, median};

/// The destinations of results.
pub(crate) struct Report {
    csv: Option<BufWriter<File>>,
}

/// All runs of one workload.
pub(crate) struct Series {
    /// Name of the workload, such as `file/tcp80`.
    pub(crate) workload: String,
    /// Each peer with its runs; ours first.
    pub(crate) peers: Vec<(String, Vec<Run>)>,
    /// Goal of the ratio to every peer.
    pub(crate) goal: Option<Goal>,
}

/// A promise, as a bound of a ratio of medians.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The peer's time by ours, at least.
    TimesFaster(f64),
    /// Our time by the peer's, at most.
    ShareOfTime(f64),
}

impl Series {
    /// No runs yet.
    pub(crate) fn new(workload: String, peers: &[&str], goal: Option<Goal>) -> Series {
        let peers = peers.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
        Series { workload, peers, goal }
    }

    /// Runs every peer `runs` times, in turns with a rotating start.
    pub(crate) fn interleave(
        &mut self,
        runs: usize,
        mut run: impl FnMut(usize) -> anyhow::Result<Run>,
    ) -> anyhow::Result<()> {
        for round in 0..runs {
            for turn in 0..self.peers.len() {
                let peer = (turn + round) % self.peers.len();
                self.peers[peer].1.push(run(peer)?);
            }
        }
        Ok(())
    }
}

impl Report {
    /// Opens the file of single runs, if there is to be one.
    pub(crate) fn new(csv: Option<&Path>) -> anyhow::Result<Report> {
        let mut csv = csv.map(File::create).transpose()?.map(BufWriter::new);
        if let Some(file) = &mut csv {
            writeln!(file, "workload,peer,run,cpu_ns,wall_ns,packets,lost")?;
        }
        Ok(Report { csv })
    }

    /// Prints the machine of the figures.
    pub(crate) fn describe_machine(&self) {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cpus = std::thread::available_parallelism().map_or(0, usize::from);
        println!(
            "{cpus} processors, {}, Linux {}, load {}",
            machine::processor_name(),
            kernel.trim(),
            load.trim()
        );
        println!("processor time, user and system; medians of interleaved runs\n");
    }

    /// Prints one workload's medians and keeps its runs.
    pub(crate) fn add(&mut self, series: &Series) -> anyhow::Result<()> {
        println!("{}", series.workload);
        let ours = median_ns(&series.peers[0].1);
        for (index, (name, runs)) in series.peers.iter().enumerate() {
            let (own, lost) = (median_ns(runs), median(runs.iter().map(|run| run.lost as f64)));
            let total_ms = median(runs.iter().map(|run| run.cpu.as_secs_f64() * 1e3));
            let is_ours = name.starts_with("tapline");
            let compared = match (index, is_ours) {
                (0, _) => String::new(),
                (_, true) => compare(None, ours, own),
                _ => compare(series.goal, ours, own),
            };
            println!("  {name:<12} {total_ms:>10.1} ms {own:>9.1} ns/packet {lost:>9.0} lost  {compared}");
        }
        self.keep(series)
    }

    /// Keeps the runs of a workload that prints its own figures.
    pub(crate) fn keep(&mut self, series: &Series) -> anyhow::Result<()> {
        if let Some(csv) = &mut self.csv {
            write_runs(csv, series)?;
        }
        Ok(())
    }
}

fn compare(goal: Option<Goal>, ours: f64, theirs: f64) -> String {
    match goal {
        None => format!("{:.2} times ours", theirs / ours),
        Some(Goal::TimesFaster(bound)) => {
            let ratio = theirs / ours;
            format!("{ratio:.2} times ours (goal {bound}: {})", judge(ratio, RATIOS, |ratio| ratio >= bound))
        }
        Some(Goal::ShareOfTime(bound)) => {
            let share = ours / theirs;
            format!(
                "ours is {share:.3} of it (goal {bound}: {})",
                judge(share, RATIOS, |share| share <= bound)
            )
        }
    }
}

fn median_ns(runs: &[Run]) -> f64 {
    median(runs.iter().map(Run::cpu_ns_per_packet))
}

fn write_runs(csv: &mut impl Write, series: &Series) -> anyhow::Result<()> {
    for (name, runs) in &series.peers {
        for (number, run) in runs.iter().enumerate() {
            let (cpu, wall) = (run.cpu.as_nanos(), run.wall.as_nanos());
            writeln!(csv, "{},{name},{number},{cpu},{wall},{},{}", series.workload, run.packets, run.lost)?;
        }
    }
    csv.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn peers_take_turns() {
        let mut order = Vec::new();
        let mut series = Series::new("test".into(), &["a", "b"], None);
        series
            .interleave(2, |peer| {
                order.push(peer);
                Ok(Run { cpu: Duration::from_millis(1), packets: 1, ..Run::default() })
            })
            .unwrap();
        assert_eq!(order, [0, 1, 1, 0]);
        assert!(series.peers.iter().all(|(_, runs)| runs.len() == 2));
    }

    #[test]
    fn goals_are_judged() {
        assert!(compare(Some(Goal::TimesFaster(3.0)), 10.0, 31.0).contains(": met"));
        assert!(compare(Some(Goal::TimesFaster(3.0)), 10.0, 29.0).contains("MISSED"));
        assert!(compare(Some(Goal::ShareOfTime(0.7)), 6.0, 10.0).contains(": met"));
        assert!(compare(Some(Goal::ShareOfTime(0.7)), 8.0, 10.0).contains("MISSED"));
    }
}
