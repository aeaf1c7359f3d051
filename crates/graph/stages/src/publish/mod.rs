//! `publish`: a place of the graph as a capture of its own, which other processes read as `tap:NAME`.
//!
//! ```text
//! graph's thread   packets --the union of all readers' filters--> copies --> queue: full? lost, and counted
//! thread tap:NAME  PublishedSource <-- queue;  its worker has readers, buffers and rules, as a capture of the daemon
//! ```
//!
//! The graph copies packets that any reader accepts, and waits for no reader: not for a slow one, not for a lossless
//! one.

mod queue;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapline_graph::catalog::{Constructor, Order, Outputs, Parameter, ParameterType, StageClass, refuse};
use tapline_graph::{Out, Packets, Stage, StageCounters, StageStatus, TickContext};
use tapline_packet::{Interface, Selection};
use tapline_source::{Error, OutputAccount, SkipCause};

use super::filter::{Filters, native};
use queue::{PacketBlock, Queue, ReaderFilter};
pub use source::PublishedSource;

/// The class; programs open its stages.
pub const CLASS: StageClass = StageClass {
    name: "publish",
    summary: "packets for other processes, as the capture tap:NAME",
    description: "The packets of this stage are a capture of their own: tapline capture -i tap:NAME, tapline run, and tcpdump on our libpcap read it, each \
        with its own filter (docs/graph.md, Published places). Readers come and go; a slow one loses packets of its own, and the graph waits for none. \
        Without users, groups and everybody only root and the user that runs the graph may read.",
    parameters: &[
        Parameter::required("name", ParameterType::Text)
            .means("the name behind tap: - letters, digits, and - _ . between them"),
        Parameter::new("users", ParameterType::Text, "")
            .means("users that may read, by name or number: \"alice, 1007\""),
        Parameter::new("groups", ParameterType::Text, "").means("groups whose members may read"),
        Parameter::new("everybody", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether every user may read"),
        Parameter::new("filter", crate::FILTER_TEXT, "")
            .means("a filter of the packets that these users see, in addition to their own"),
        Parameter::new("snap", ParameterType::Number(1, 262_144), "262144")
            .means("the most bytes that these users see of a packet"),
        Parameter::new("readers", ParameterType::Number(1, 1024), "64")
            .means("readers at the same time, for each of these users"),
        Parameter::new("buffer", ParameterType::Number(4, 65_536), "16")
            .means("MiB of the buffer, a power of two; one for each group of readers with equal rights"),
        Parameter::new("history", ParameterType::Choice(&["no", "yes"]), "no")
            .means("whether packets are kept without a reader too, for readers that begin in the past (--since)"),
        Parameter::new("socket", ParameterType::Text, "")
            .means("the socket that readers ask; empty for TAPLINE_SOCKET, else /run/tapline/tap-NAME.sock, where readers look"),
    ],
    outputs: Outputs::None,
    order: Order::All,
    example: "device(eth0) -> filter(\"udp port 53\") -> sample(1/10) -> publish(dns, groups=netops, snap=128)",

    make: Constructor::Output(refuse),
    ..StageClass::BASE
};

/// The graph's end of a published place.
pub struct Publish {
    name: String,
    queue: Arc<Queue>,
    /// The version of the readers' wishes that `wanted` is of.
    version: u64,
    wanted: ReaderFilter,
    filters: Filters,
    block: PacketBlock,
    interfaces: usize,
    written: u64,
    /// Packets for which the queue was full, by interface.
    lost: Vec<u64>,
    unwanted: u64,
}

impl Publish {
    /// A place with the name `tap:NAME`, and the source that a capture of the daemon reads it by. `interfaces` are those
    /// known at the start.
    ///
    /// # Errors
    /// [`Error::Source`] without a descriptor.
    pub fn new(name: &str, interfaces: &[Interface]) -> Result<(Publish, PublishedSource), Error> {
        let queue = Queue::new(interfaces).map_err(|error| Error::source(name, error))?;
        let publish = Publish {
            name: format!("tap:{name}"),
            queue: Arc::clone(&queue),
            version: 0,
            wanted: ReaderFilter::All,
            filters: Filters::new(Arc::new(native)),
            block: PacketBlock::default(),
            interfaces: interfaces.len(),
            written: 0,
            lost: Vec::new(),
            unwanted: 0,
        };
        Ok((publish, PublishedSource::new(queue)))
    }

    /// Takes the readers' wishes, if they are others than before.
    fn learn_wishes(&mut self) {
        let version = self.queue.version.load(Ordering::Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        self.wanted = self.queue.lock().wanted.clone();
        self.filters = Filters::new(Arc::new(native));
        if let ReaderFilter::Only(program) = &self.wanted {
            self.filters.extend([Some(program.clone())]);
        }
    }

    /// Leaves in the selection the packets that any reader accepts.
    fn select_wanted(&mut self, packets: &Packets<'_>, selection: &mut Selection) {
        match self.wanted {
            ReaderFilter::All => {}
            ReaderFilter::Nothing => selection.truncate(0),
            ReaderFilter::Only(_) => self.filters.select(&packets.batch, selection),
        }
    }

    /// Hands the block over, if it has packets and the queue has room, or `must` take it.
    fn hand_over(&mut self, must: bool) {
        let packets = self.block.len() as u64;
        if packets > 0 && self.queue.put(&mut self.block, &self.lost, must) {
            self.written += packets;
        }
    }

    fn lose(&mut self, interface: usize) {
        if self.lost.len() <= interface {
            self.lost.resize(interface + 1, 0);
        }
        self.lost[interface] += 1;
    }
}

impl Stage for Publish {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        if packets.interfaces.len() > self.interfaces {
            self.interfaces = packets.interfaces.len();
            self.queue.learn(packets.interfaces);
        }
        self.learn_wishes();
        let mut selection = packets.selection.clone();
        self.select_wanted(packets, &mut selection);
        self.unwanted += (packets.len() - selection.len()) as u64;
        for index in selection.iter() {
            if self.block.is_full() {
                self.hand_over(false);
            }
            match self.block.is_full() {
                true => self.lose(packets.batch.records()[index].meta.interface.0 as usize),
                false => self.block.copy(&packets.batch, index),
            }
        }
        self.hand_over(false);
        Ok(())
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.hand_over(false);
        Ok(())
    }

    fn tick(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<StageStatus, Error> {
        self.hand_over(false);
        self.queue.lock().uncaptured.merge(tick.uncaptured);
        Ok(StageStatus::Running)
    }

    fn finish(&mut self, tick: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.hand_over(true);
        self.queue.lock().uncaptured.merge(tick.uncaptured);
        self.queue.end();
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_output(OutputAccount {
            name: self.name.clone(),
            written: self.written,
            lost: self.lost.iter().sum(),
            buffered: self.block.len() as u64,
            skipped: Some((SkipCause::Unwanted, self.unwanted)),
            ..OutputAccount::default()
        })
    }
}

impl Drop for Publish {
    fn drop(&mut self) {
        self.queue.end();
    }
}
