//! A graph between sources and ends that remember their packets: for the tests of stages, inside and outside of the
//! crate.
//!
//! ```text
//! file("in") -> STAGES -> json        what is pushed -> the stages, as a plan builds them -> what arrived, end by end
//! ```
#![allow(dead_code)] // each test uses a part

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tapline_graph::catalog::GraphSettings;
use tapline_graph::plan::{self, GraphText, Plan, WorkerContext};
use tapline_graph::{
    Cell, Control, Graph, GraphAccount, NodeId, Out, Packets, Stage, StageCounters, Table, TickContext,
};
use tapline_meters::Meters;
use tapline_packet::{BATCH_MAX, Batch, ClockReading, Interface, LinkType, Meta, Record, Timestamp};
use tapline_source::{Error, InterfaceAccount, OutputAccount};
use tapline_stages::{StageSettings, ViewFile};

/// A packet that came to an end of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) data: Vec<u8>,
    pub(crate) options: Vec<u8>,
    pub(crate) meta: Meta,
    pub(crate) interface: String,
    pub(crate) link_type: LinkType,
}

/// A graph under test.
pub(crate) struct Trial {
    pub(crate) graph: Graph,
    source: NodeId,
    ends: Vec<Arc<Mutex<Vec<Arrived>>>>,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) now: ClockReading,
    delivered: u64,
    control: Arc<Control>,
}

struct End {
    arrived: Arc<Mutex<Vec<Arrived>>>,
    written: u64,
}

impl Stage for End {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let mut arrived = self.arrived.lock().expect("no panic");
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let interface = &packets.interfaces[packet.meta.interface.0 as usize];
            arrived.push(Arrived {
                data: packet.data.to_vec(),
                options: packets.batch.options(index).to_vec(),
                meta: *packet.meta,
                interface: interface.name.clone(),
                link_type: interface.link_type,
            });
            self.written += 1;
        }
        Ok(())
    }

    fn counters(&self) -> StageCounters {
        let name = "end".to_owned();
        StageCounters::of_output(OutputAccount { name, written: self.written, ..OutputAccount::default() })
    }
}

fn options(interface: &Interface) -> tapline_filter::Options {
    tapline_filter::Options { link_type: interface.link_type, ..tapline_filter::Options::default() }
}

impl Trial {
    /// Stages in a row: `cut(l4) -> count`.
    pub(crate) fn of(stages: &str) -> Trial {
        Trial::graph(&format!("file(\"in\") -> {stages} -> json")).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Any graph with the source `file("in")` and ends of the class `json`.
    pub(crate) fn graph(text: &str) -> Result<Trial, String> {
        Trial::viewed(text, None)
    }

    /// Makes a trial with a file for the stage `view`.
    pub(crate) fn viewed(text: &str, view: Option<Arc<ViewFile>>) -> Result<Trial, String> {
        let plan = Plan::new(tapline_stages::catalog(), &[GraphText { name: "trial", text }])?;
        let settings = StageSettings { options: Arc::new(options), view, ..StageSettings::default() };
        let common = GraphSettings { directory: PathBuf::from("."), ..settings.into() };
        let mut ends = Vec::new();
        let mut output = |_: usize| -> Result<Box<dyn Stage>, String> {
            let arrived = Arc::new(Mutex::new(Vec::new()));
            ends.push(Arc::clone(&arrived));
            Ok(Box::new(End { arrived, written: 0 }))
        };
        let control = Arc::new(Control::new(None));
        let context =
            WorkerContext { worker: 0, control: &control, common: &common, exits: None, output: &mut output };
        let (graph, sources) = plan::build(&plan, &Meters::private(), context)?;
        Ok(Trial {
            graph,
            source: sources[0],
            ends,
            interfaces: vec![Interface::new("eth0", LinkType::ETHERNET)],
            now: ClockReading::default(),
            delivered: 0,
            control,
        })
    }

    /// Requests to the run.
    pub(crate) fn control(&self) -> Arc<Control> {
        Arc::clone(&self.control)
    }

    /// Pushes a batch, a nanosecond later than the previous one.
    pub(crate) fn push(&mut self, batch: Batch<'_>) {
        self.try_push(batch).expect("nothing fails");
    }

    /// As [`push`](Self::push), where a stage may fail.
    pub(crate) fn try_push(&mut self, batch: Batch<'_>) -> Result<(), Error> {
        self.now.wall = self.now.wall.plus_nanos(1);
        self.now.steady_ns = self.now.steady_ns.saturating_add(1);
        self.delivered += batch.len() as u64;
        let mut packets = Packets::all(batch, &self.interfaces, self.now);
        if packets.is_empty() {
            return Ok(());
        }
        self.graph.push(self.source, &mut packets, 0)
    }

    /// Pushes packets with their metadata, in batches of at most `batch_len`.
    pub(crate) fn push_all(&mut self, packets: &[(Vec<u8>, Meta)], batch_len: usize) {
        for chunk in packets.chunks(batch_len.clamp(1, BATCH_MAX)) {
            let (base, records) = lent(chunk);
            self.push(Batch::new(&base, &records));
        }
    }

    /// Pushes whole frames.
    pub(crate) fn push_frames(&mut self, frames: &[Vec<u8>]) {
        let packets: Vec<_> = frames.iter().map(|frame| (frame.clone(), whole(frame))).collect();
        self.push_all(&packets, BATCH_MAX);
    }

    /// Pushes 60 bytes for each time stamp, in nanoseconds; the number of each in its first two bytes.
    pub(crate) fn push_stamps(&mut self, stamps: &[i64]) {
        let packet = |(number, stamp): (usize, &i64)| {
            let mut frame = vec![0; 60];
            frame[..2].copy_from_slice(&(number as u16).to_be_bytes());
            let meta = Meta { timestamp: Timestamp::from_nanos(*stamp), ..whole(&frame) };
            (frame, meta)
        };
        let packets: Vec<_> = stamps.iter().enumerate().map(packet).collect();
        self.push_all(&packets, BATCH_MAX);
    }

    /// Advances the time.
    pub(crate) fn tick(&mut self, now: i64) {
        self.tick_at(ClockReading::unset(Timestamp::from_nanos(now)));
    }

    /// Advances both clocks.
    pub(crate) fn tick_at(&mut self, now: ClockReading) {
        self.now = now;
        self.graph.tick(&TickContext::new(now, &[])).expect("nothing fails");
    }

    /// Completes the stages.
    pub(crate) fn finish(&mut self) {
        let tick = TickContext::new(self.now, &[]);
        self.graph.finish(&tick).expect("nothing fails");
    }

    /// The packets that reached an end since the last call.
    pub(crate) fn arrived_at(&self, end: usize) -> Vec<Arrived> {
        std::mem::take(&mut self.ends[end].lock().expect("no panic"))
    }

    /// Packets that arrived at the only end.
    pub(crate) fn arrived(&self) -> Vec<Arrived> {
        self.arrived_at(0)
    }

    /// Bytes of the packets at the only end.
    pub(crate) fn data(&self) -> Vec<Vec<u8>> {
        self.arrived().into_iter().map(|packet| packet.data).collect()
    }

    /// Time stamps of the packets at the only end, in nanoseconds.
    pub(crate) fn stamps(&self) -> Vec<i64> {
        self.arrived().iter().map(|packet| packet.meta.timestamp.as_nanos()).collect()
    }

    /// The result of a stage.
    pub(crate) fn result(&self, name: &str) -> Table {
        let results = self.graph.results();
        let named = results.into_iter().find(|result| result.stage == name);
        named.unwrap_or_else(|| panic!("{name} found out nothing")).table
    }

    /// The row of a result that begins with a word, or the only row.
    pub(crate) fn numbers(&self, name: &str, row: Option<&str>) -> Vec<u64> {
        let rows = self.result(name).rows;
        let is_wanted = |cells: &&Vec<Cell>| row.is_none_or(|row| cells[0] == Cell::from(row.to_owned()));
        let cells = rows.iter().find(is_wanted).map(Vec::as_slice).unwrap_or(&[]);
        let number = |cell: &Cell| match cell {
            Cell::Number(number) => Some(*number),
            Cell::Sum(_) | Cell::Text(_) | Cell::Time(_) | Cell::Unknown => None,
        };
        cells.iter().filter_map(number).collect()
    }

    /// The packet account.
    pub(crate) fn account(&self) -> GraphAccount {
        GraphAccount {
            interfaces: vec![InterfaceAccount::of_file("eth0", self.delivered)],
            delivered: self.delivered,
            unexamined: 0,
            paused: 0,
            stages: self.graph.account(),
        }
    }

    /// Fails unless every packet is accounted for.
    pub(crate) fn assert_balanced(&self) {
        assert_eq!(self.account().faults(), [""; 0]);
    }

    /// The packets that a stage refused, and those that it holds.
    pub(crate) fn refused_and_held(&self, name: &str) -> (u64, u64) {
        let stages = self.graph.account();
        let stage = stages.iter().find(|stage| stage.name == name).expect("a stage of this name");
        (stage.refused(), stage.counters.held)
    }
}

/// The metadata of a frame that was captured whole.
pub(crate) fn whole(frame: &[u8]) -> Meta {
    Meta { wire_len: frame.len() as u32, ..Meta::default() }
}

/// Packets as a source lends them.
pub(crate) fn lent(packets: &[(Vec<u8>, Meta)]) -> (Vec<u8>, Vec<Record>) {
    let (mut base, mut records) = (Vec::new(), Vec::new());
    for (data, meta) in packets {
        let record = Record { offset: base.len(), cap_len: data.len() as u32, options_len: 0, meta: *meta };
        records.push(record);
        base.extend_from_slice(data);
    }
    (base, records)
}
