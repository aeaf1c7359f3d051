//! What `tapline replay` and `tapline generate -i` have in common: the interface that they send on, and what is told of it.

mod report;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use tapline_capture::transmit::{Network, SendSettings, Transmitter};
use tapline_sys::timer;

pub(crate) use report::{Outcome, Taken, conclude};

/// How packets are sent.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    /// Send on this interface whatever it is. Without it, only loopback and veth interfaces are sent on.
    #[arg(long, value_name = "IFACE", help_heading = "Sending", requires = "interface")]
    i_own_this_network: Vec<String>,
    /// Send in this network namespace (`ip netns list`).
    #[arg(long, value_name = "NAME", help_heading = "Sending", requires = "interface")]
    pub(crate) netns: Option<String>,
    /// Send in a real-time thread, which no ordinary one interrupts: for even gaps on a busy machine. Needs root or CAP_SYS_NICE.
    #[arg(long, help_heading = "Sending", requires = "interface")]
    realtime: bool,
    /// How long a full queue is tried again before a packet counts as not sent, in milliseconds. With 0 nothing is waited for, as on a wire
    #[arg(long, value_name = "MS", help_heading = "Sending", default_value_t = 500)]
    patience: u32,
}

impl SendArgs {
    /// Opens an interface to send on, if that is allowed there, and makes this thread what it is to be.
    pub(crate) fn open(&self, interface: &str) -> Result<Transmitter> {
        let network = Network::look(self.netns.as_deref(), &self.i_own_this_network)?;
        let settings =
            SendSettings { patience: Duration::from_millis(self.patience.into()), ..SendSettings::default() };
        let transmitter = Transmitter::open(&network.permit(interface)?, &settings)?;
        if self.realtime {
            timer::set_realtime().context("--realtime needs root or CAP_SYS_NICE")?;
        }
        Ok(transmitter)
    }
}
