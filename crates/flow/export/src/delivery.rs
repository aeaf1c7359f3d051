//! Deliveries to a receiver: whose blocks they are, the carrier that takes them, and the spool that keeps them.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::key_group::KEY_GROUPS;
use crate::{BlockId, Carrier, Encoding, Error, Limits, Receiver, Secret, Sensor, Spool};

/// Maximum number of workers: the low bits of their epoch distinguish them.
const WORKERS_MAX: u64 = 64;

/// An open way to a receiver, of flows or of packets.
pub struct Delivery {
    /// The receiver as users wrote it, without secrets.
    pub name: String,
    /// The id of the first block. Its epoch is the time of the start, which no other run or worker has.
    pub id: BlockId,
    /// The form of the blocks.
    pub encoding: Encoding,
    /// Key groups: a block has flows of one of them.
    pub groups: u64,
    /// The carrier that takes the blocks.
    pub carrier: Box<dyn Carrier>,
    /// The spool that keeps them.
    pub spool: Option<Spool>,
    /// Limits of batches and of waiting.
    pub limits: Limits,
}

impl Delivery {
    /// Opens the receiver, and a spool of so many bytes in a folder. Each worker has a spool of its own. Without a sensor
    /// ids have the host; `secret` is the password of the receiver's user, or a token.
    ///
    /// # Errors
    /// If one of them cannot be opened; the text has the remedy.
    pub fn open(
        to: &Receiver,
        sensor: Option<Sensor>,
        spool: Option<(PathBuf, u64)>,
        secret: Option<Secret>,
        limits: Limits,
        worker: u64,
    ) -> Result<Delivery, Error> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let epoch = ns - ns % WORKERS_MAX + worker % WORKERS_MAX;
        let sensor = sensor.map_or_else(Sensor::host, Ok)?;
        let spool = spool.map(|(folder, bytes)| {
            Spool::open(&folder.join(to.slug()).join(worker.to_string()), bytes, to.encoding())
        });
        Ok(Delivery {
            name: to.to_string(),
            id: BlockId { sensor, epoch, number: 0 },
            encoding: to.encoding(),
            groups: if to.is_keyed_by_flow() { KEY_GROUPS } else { 1 },
            spool: spool.transpose()?,
            limits: Limits { block: limits.block.min(to.block_max()), ..limits },
            carrier: to.open(secret)?,
        })
    }
}
