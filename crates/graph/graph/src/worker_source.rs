//! Sources as workers have them.

use tapline_packet::Timestamp;
use tapline_source::Source;

use crate::shard::FlowShardSource;
use crate::worker_merge::{TimedSource, Watermark};

/// A source of one worker.
pub enum WorkerSource {
    /// The packets that the kernel gives this worker.
    Device(Box<dyn Source>),
    /// A source that one worker reads whole.
    Whole(Box<dyn Source>),
    /// A share of a source, by flow.
    Share(Box<FlowShardSource>),
}

impl WorkerSource {
    /// The source.
    pub fn source(&self) -> &dyn Source {
        match self {
            WorkerSource::Device(source) | WorkerSource::Whole(source) => source.as_ref(),
            WorkerSource::Share(share) => share.as_ref(),
        }
    }

    /// For a worker that is the only one.
    pub fn alone(self) -> Box<dyn Source> {
        match self {
            WorkerSource::Device(source) | WorkerSource::Whole(source) => source,
            WorkerSource::Share(share) => share,
        }
    }

    /// For one of several workers: it reports how far it has come, by its packets and by `clock`.
    pub fn marked(self, watermark: Option<Watermark>, clock: fn() -> Timestamp) -> Box<dyn Source> {
        match (self, watermark) {
            (WorkerSource::Device(source) | WorkerSource::Whole(source), None) => source,
            (WorkerSource::Device(source) | WorkerSource::Whole(source), Some(watermark)) => {
                Box::new(TimedSource::new(source, watermark, clock))
            }
            (WorkerSource::Share(mut share), watermark) => {
                share.mark(watermark);
                share
            }
        }
    }

    /// A source for each worker: shares of this one, if there are several. A stream, whose length nobody knows, is shared
    /// even with one worker: a thread that waits for its packets would notice neither SIGUSR1 nor the clock.
    pub fn shared(source: Box<dyn Source>, workers: usize) -> Vec<WorkerSource> {
        match workers {
            1 if source.progress().is_some() => vec![WorkerSource::Whole(source)],
            _ => FlowShardSource::shares(source, workers)
                .map(|share| WorkerSource::Share(Box::new(share)))
                .collect(),
        }
    }
}
