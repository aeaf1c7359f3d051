//! `tapline metrics`: counters of running captures as text for Prometheus.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use sd_notify::NotifyState;
use tapline_metrics::{Address, Collector, Format, Server, write_file};
use tapline_sys::sandbox::{self, AllowedAccess};
use tapline_tap_client::socket_path;

use crate::args::parse_interval;
use crate::mistakes::{mistake, misuse};
use crate::output::say;
use crate::signals::HangUps;
use crate::{privileges, signals};

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline metrics --listen 127.0.0.1:9477             then, in Prometheus: static_configs: [{targets: ['127.0.0.1:9477']}]
  tapline metrics --listen /run/tapline/metrics.sock   then: curl --unix-socket /run/tapline/metrics.sock http://localhost/metrics
  tapline metrics --textfile /var/lib/prometheus/node-exporter/tapline.prom --interval 15s
  tapline metrics --once                              the text, once

Numbers are read from the meters of running processes and from the state of tapline serve, at no cost to captures. An unknown number has
no sample; tapline_interface_unknown and tapline_capture_unknown report it. docs/reference/metrics.md lists all names.";

/// Arguments of the command.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Serve /metrics on this address: a port of this host (127.0.0.1:9477, [::1]:9477), or the path of a Unix socket.
    /// Clients get Prometheus or OpenMetrics text, whichever they accept.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["once", "textfile"])]
    listen: Option<String>,
    /// Write the metrics to this file, for the textfile collector of node_exporter, which reads names that end in
    /// .prom.
    #[arg(long, value_name = "FILE")]
    textfile: Option<PathBuf>,
    /// Print the metrics once, or write the file once, and exit.
    #[arg(long)]
    once: bool,
    /// With --once: OpenMetrics text instead of Prometheus text.
    #[arg(long, conflicts_with_all = ["textfile", "listen"])]
    openmetrics: bool,
    /// Write the file at this interval.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_interval)]
    interval: Duration,
    /// The socket of tapline serve. Default: TAPLINE_SOCKET, or /run/tapline/serve.sock.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: &MetricsArgs) -> Result<ExitCode> {
    let collector = Collector::new(&socket_path(args.socket.as_deref()), env!("CARGO_PKG_VERSION"));
    let is_over = Arc::new(AtomicBool::new(false));
    let hang_ups = signals::end_service(&is_over)?;
    if let Some(text) = &args.listen {
        return listen(&Address::parse(text).map_err(mistake)?, collector, &is_over, hang_ups);
    }
    if let Some(path) = &args.textfile {
        confine(AllowedAccess { makes: folder(path), ..AllowedAccess::default() });
        hang_ups.obey()?;
        loop {
            write_file(path, &collector.collect())?;
            if args.once || !signals::sleep(args.interval, &is_over) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    if !args.once {
        misuse!(
            "metrics for whom? --listen 127.0.0.1:9477 serves them, --textfile FILE writes them, --once prints them"
        );
    }
    confine(AllowedAccess::default());
    let format = if args.openmetrics { Format::OpenMetrics } else { Format::Prometheus };
    io::stdout().write_all(collector.collect().text(format).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Leaves this process the files of meters, the daemon's socket, and `needs`.
fn confine(needs: AllowedAccess) {
    let reads = privileges::folders_of_meters().collect();
    for lack in sandbox::confine(&AllowedAccess { reads, ..needs }) {
        say(lack);
    }
}

fn folder(path: &Path) -> Vec<PathBuf> {
    sandbox::folder_of(path).map(Path::to_owned).into_iter().collect()
}

fn listen(
    address: &Address,
    collector: Collector,
    is_over: &AtomicBool,
    hang_ups: HangUps,
) -> Result<ExitCode> {
    let server = Server::bind(address, collector)?;
    let at = server.address();
    writeln!(io::stderr(), "tapline: metrics at {at}")?;
    // Without a service manager there is nothing to tell.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let removes = if let Address::Unix(path) = address { folder(path) } else { Vec::new() };
    confine(AllowedAccess { removes, ..AllowedAccess::default() });
    hang_ups.obey()?;
    server.run(is_over)?;
    Ok(ExitCode::SUCCESS)
}
