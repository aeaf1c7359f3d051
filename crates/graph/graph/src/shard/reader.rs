//! The thread that reads a source for all workers.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tapline_packet::BATCH_MAX;
use tapline_source::{Advance, Error, Source};

use super::block::Block;
use super::{ShardState, SharedBlocks};

/// Size at which a block is handed over, in bytes. Smaller blocks cost more wake-ups, larger ones leave the cache.
const BLOCK_LEN: usize = 256 << 10;
/// The longest time that the reader waits before it checks for a stop.
const WAIT: Duration = Duration::from_millis(100);

/// Makes the reader begin, if it has not.
pub(super) fn start(desk: &Arc<SharedBlocks>, state: &mut ShardState) -> Result<(), Error> {
    let Some(source) = state.source.take() else { return Ok(()) };
    let reader = Reader { desk: Arc::clone(desk), source, workers: state.at.len(), read: 0 };
    match thread::Builder::new().name("reader".to_owned()).spawn(move || reader.run()) {
        Ok(thread) => state.reader = Some(thread),
        Err(error) => {
            state.is_over = true;
            desk.filled.notify_all();
            return Err(Error::source("the reader's thread", error));
        }
    }
    Ok(())
}

/// The thread that reads.
struct Reader {
    desk: Arc<SharedBlocks>,
    source: Box<dyn Source>,
    workers: usize,
    /// Packets so far.
    read: u64,
}

impl Reader {
    fn run(mut self) {
        let _ending = Ending(Arc::clone(&self.desk));
        let mut error = None;
        while let Some(mut block) = self.desk.room(self.workers) {
            let step = self.fill(&mut block);
            let is_filled = !block.spans.is_empty();
            self.desk.publish(is_filled.then_some(block), self.source.as_mut());
            match step {
                Ok(Advance::End) => break,
                Ok(_) => {}
                Err(fault) => {
                    error = Some(fault);
                    break;
                }
            }
        }
        let accounts = self.source.account();
        let mut state = self.desk.lock();
        state.accounts = accounts;
        state.error = error;
    }

    /// Reads until a block is full, the source has nothing more now, or it ends.
    fn fill(&mut self, block: &mut Block) -> Result<Advance, Error> {
        // From a pipe each batch goes on at once: the next may be long in coming.
        let is_whole = self.source.progress().is_some();
        loop {
            match self.source.advance(WAIT)? {
                Advance::Batch => {
                    let batch = self.source.batch();
                    block.add(&batch, self.source.interfaces(), self.read);
                    block.interfaces = self.source.interfaces().len();
                    self.read += batch.len() as u64;
                }
                other => return Ok(other),
            }
            let is_full = block.bytes.len() >= BLOCK_LEN || block.spans.len() >= BATCH_MAX;
            if is_full || !is_whole {
                return Ok(Advance::Batch);
            }
        }
    }
}

/// Signals the workers that nothing more comes, however the reader's thread ended.
struct Ending(Arc<SharedBlocks>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.filled.notify_all();
    }
}
