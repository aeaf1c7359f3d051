//! Requested against achieved rates of `tapline generate -i`, back end by back end.
//!
//! ```text
//! for each run, size, rate, back end (in turns)
//!   tapline generate -i near0 --backend B size=S rate=R --json      near0 === far0 (a veth pair of a namespace made for it)
//!   check   its account balances, nothing is lost, and far0 has received as many packets as were sent
//! medians   rate by the sender's own clock, its deviation from what was asked, gap errors
//! ```
//!
//! far0 has GRO on, so that it takes XDP frames; no program receives there.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use tapline_testkit::netns::{FAR, NEAR, Namespace};

use crate::Options;
use tapline_measure::runs::median;

/// Time limit for packets to arrive.
const ARRIVAL_MAX: Duration = Duration::from_secs(5);

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct RateArgs {
    /// Packets a second; 0 is as fast as it goes.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000, 300_000, 0])]
    rates: Vec<u64>,
    /// Bytes of a frame.
    #[arg(long, value_delimiter = ',', default_values_t = [60, 1500])]
    sizes: Vec<u32>,
    /// Back ends.
    #[arg(long, value_delimiter = ',', default_values_t = ["packet", "xdp", "live"].map(str::to_owned))]
    backends: Vec<String>,
    /// Length of each run, in seconds; as fast as it goes, as many packets as half a million a second would be.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Send in real-time threads.
    #[arg(long)]
    realtime: bool,
    /// Write every run to this file, as one JSON object.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Default for RateArgs {
    fn default() -> RateArgs {
        RateArgs {
            rates: vec![1_000, 10_000, 100_000, 300_000, 0],
            sizes: vec![60, 1500],
            backends: ["packet", "xdp", "live"].map(str::to_owned).to_vec(),
            seconds: 1.0,
            realtime: false,
            json: None,
        }
    }
}

/// Parameters of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    size: u32,
    rate: u64,
    backend: String,
}

/// Measures all in turns and prints the medians.
pub(crate) fn run(args: &RateArgs, options: &Options) -> anyhow::Result<()> {
    let bench = Bench::new(args, options)?;
    let backends: Vec<&String> = args.backends.iter().filter(|backend| bench.works(backend)).collect();
    let mut cases = Vec::new();
    for &size in &args.sizes {
        for &rate in &args.rates {
            let case = |backend: &&String| Case { size, rate, backend: (*backend).clone() };
            cases.extend(backends.iter().map(case));
        }
    }
    let mut runs: Vec<Vec<Value>> = vec![Vec::new(); cases.len()];
    for _ in 0..options.runs {
        for (case, runs) in cases.iter().zip(&mut runs) {
            runs.push(bench.measure(case)?);
        }
    }
    println!(
        "{:>5} {:>9} {:8} {:>12} {:>11} {:>11} {:>11} {:>11} {:>9}",
        "bytes", "asked/s", "by", "packets/s", "off by", "worst", "gap median", "gap p99", "dropped"
    );
    let mut rows = Vec::new();
    for (case, runs) in cases.iter().zip(&runs) {
        let row = summary(case, runs);
        print_row(&row);
        rows.push(json!({ "median": row, "runs": runs }));
    }
    if let Some(path) = &args.json {
        let whole =
            json!({ "workload": "rate", "realtime": args.realtime, "seconds": args.seconds, "rows": rows });
        std::fs::write(path, format!("{whole}\n")).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

/// The link, and the program that sends.
struct Bench<'a> {
    args: &'a RateArgs,
    tapline: PathBuf,
    namespace: Namespace,
}

impl<'a> Bench<'a> {
    fn new(args: &'a RateArgs, options: &Options) -> anyhow::Result<Bench<'a>> {
        let tapline = options.tapline()?;
        let namespace = Namespace::with_pair("rate").map_err(|e| anyhow!(e))?;
        let gro = namespace.command("ethtool").args(["-K", FAR, "gro", "on"]).status()?;
        ensure!(gro.success(), "ethtool cannot switch GRO on");
        Ok(Bench { args, tapline, namespace })
    }

    fn generate(&self, backend: &str, recipe: &[String]) -> anyhow::Result<std::process::Output> {
        let mut command = Command::new(&self.tapline);
        command.args([
            "generate",
            "--json",
            "--netns",
            self.namespace.name(),
            "-i",
            NEAR,
            "--backend",
            backend,
        ]);
        if self.args.realtime {
            command.arg("--realtime");
        }
        command.args(recipe).output().with_context(|| format!("starting {}", self.tapline.display()))
    }

    /// Whether a back end works here; says why if not.
    fn works(&self, backend: &str) -> bool {
        match self.generate(backend, &["count=1".to_owned()]) {
            Ok(output) if output.status.success() => true,
            Ok(output) => {
                eprintln!("{backend}: left out: {}", String::from_utf8_lossy(&output.stderr).trim());
                false
            }
            Err(error) => {
                eprintln!("{backend}: left out: {error:#}");
                false
            }
        }
    }

    /// One run, whose answer is right or which is an error.
    fn measure(&self, case: &Case) -> anyhow::Result<Value> {
        let before = self.received()?;
        let recipe = match case.rate {
            0 => format!("udp size={} count={}", case.size, (self.args.seconds * 500e3) as u64),
            rate => {
                let count = (self.args.seconds * rate as f64).max(2.0) as u64;
                format!("udp size={} rate={rate} count={count}", case.size)
            }
        };
        let recipe: Vec<String> = recipe.split(' ').map(str::to_owned).collect();
        let output = self.generate(&case.backend, &recipe)?;
        if !output.status.success() {
            bail!("{case:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let value: Value = serde_json::from_slice(&output.stdout).context("its account")?;
        let account = &value["account"];
        ensure!(account["balanced"] == true && account["lost"] == 0, "{case:?}: {account}");
        let sent = account["sent"].as_u64().context("packets sent")?;
        // The driver drops and counts frames that AF_XDP hands to a full queue in copy mode; other back ends try again.
        let dropped = account["tx_dropped"].as_u64().unwrap_or(0);
        let begin = Instant::now();
        while self.received()? + dropped < before + sent && begin.elapsed() < ARRIVAL_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
        let received = self.received()? - before;
        ensure!(received + dropped == sent, "{case:?}: {sent} sent, {dropped} dropped, {received} received");
        Ok(json!({ "rate": value["rate"], "sent": sent, "received": received, "tx_dropped": dropped }))
    }

    fn received(&self) -> anyhow::Result<u64> {
        self.namespace.counter(FAR, "rx_packets").map_err(|e| anyhow!(e))
    }
}

fn summary(case: &Case, runs: &[Value]) -> Value {
    let values =
        |name: &str| -> Vec<f64> { runs.iter().filter_map(|run| run["rate"][name].as_f64()).collect() };
    let middle = |name: &str| {
        let values = values(name);
        (!values.is_empty()).then(|| median(values.into_iter()))
    };
    let off = |achieved: f64| (achieved / case.rate as f64 - 1.0) * 100.0;
    let achieved = values("packets_per_second");
    let worst = achieved.iter().map(|achieved| off(*achieved)).max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let is_paced = case.rate > 0;
    json!({
        "bytes": case.size,
        "asked_packets_per_second": case.rate,
        "backend": case.backend,
        "packets_per_second": middle("packets_per_second"),
        "off_percent": middle("packets_per_second").map(off).filter(|_| is_paced),
        "worst_off_percent": worst.filter(|_| is_paced),
        "gap_error_median_ns": middle("gap_error_median_ns"),
        "gap_error_p99_ns": middle("gap_error_p99_ns"),
        "tx_dropped": runs.iter().filter_map(|run| run["tx_dropped"].as_u64()).sum::<u64>(),
    })
}

fn print_row(row: &Value) {
    let number = |name: &str, digits: usize, unit: &str| {
        row[name].as_f64().map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}{unit}"))
    };
    let micros = |name: &str| {
        row[name].as_f64().map_or_else(|| "-".to_owned(), |nanos| format!("{:.2} us", nanos / 1e3))
    };
    let asked = match row["asked_packets_per_second"].as_u64() {
        Some(rate @ 1..) => rate.to_string(),
        _ => "max".to_owned(),
    };
    println!(
        "{:>5} {asked:>9} {:8} {:>12} {:>11} {:>11} {:>11} {:>11} {:>9}",
        row["bytes"],
        row["backend"].as_str().unwrap_or("?"),
        number("packets_per_second", 1, ""),
        number("off_percent", 4, " %"),
        number("worst_off_percent", 4, " %"),
        micros("gap_error_median_ns"),
        micros("gap_error_p99_ns"),
        row["tx_dropped"],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_the_worst_run() {
        let case = Case { size: 60, rate: 1000, backend: "packet".to_owned() };
        let run = |rate: f64| json!({ "rate": { "packets_per_second": rate, "gap_error_median_ns": 20 }, "tx_dropped": 1 });
        let row = summary(&case, &[run(1001.0), run(990.0), run(1000.0)]);
        assert_eq!((row["packets_per_second"].as_f64(), row["tx_dropped"].as_u64()), (Some(1000.0), Some(3)));
        assert!(row["off_percent"].as_f64().unwrap().abs() < 1e-9);
        assert!((row["worst_off_percent"].as_f64().unwrap() + 1.0).abs() < 1e-9);
        let top = summary(&Case { rate: 0, ..case }, &[run(5.0)]);
        assert!(top["off_percent"].is_null() && top["packets_per_second"] == 5.0);
    }
}
