//! Several files as one: ordered by time, or one after the other.
//!
//! ```text
//! file 0  | 1 2 | 7 ...      run lent: 1 2      (up to the least time that another file waits with)
//! file 1  | 3 5 | 9 ...      run lent: 3 5
//! ```
//!
//! Each file lends its own batches; of these, runs are lent on that come before the next packet of every other file.
//! At equal times the file that was given first goes first. A file whose own packets step back in time keeps their
//! order, as with mergecap.

use tapline_packet::{Batch, Interface, InterfaceId, Timestamp};

use crate::error::Error;
use crate::source::FileSource;

/// Several files as one source.
pub struct MergedSource {
    order: MergeOrder,
    files: Vec<File>,
    interfaces: Vec<Interface>,
    /// The run that is lent: a file, and records `from..to` of its batch.
    lent: Option<Run>,
    errors: Vec<Error>,
}

/// The order of packets of several files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeOrder {
    /// The earlier one; at equal times the one of the file given first.
    Time,
    /// The one of the file given first: file after file.
    Given,
}

struct File {
    source: FileSource,
    /// The merged number of each of its interfaces.
    ids: Vec<InterfaceId>,
    /// The next record of its batch that was not lent; beyond any batch before the first, which a file may hold since
    /// it was opened.
    next: usize,
    is_ended: bool,
}

#[derive(Clone, Copy)]
struct Run {
    file: usize,
    from: usize,
    to: usize,
}

impl MergedSource {
    /// Joins `files`. Their interfaces get numbers of one table, file by file.
    pub fn new(files: Vec<FileSource>, order: MergeOrder) -> MergedSource {
        let files = files.into_iter().map(|source| File {
            source,
            ids: Vec::new(),
            next: usize::MAX,
            is_ended: false,
        });
        let mut merged = MergedSource {
            order,
            files: files.collect(),
            interfaces: Vec::new(),
            lent: None,
            errors: Vec::new(),
        };
        for file in &mut merged.files {
            file.take_interfaces(&mut merged.interfaces);
        }
        merged
    }

    /// The interfaces of all files known so far. The table only grows.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The files, in the order given: for what each of them counted and says.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &FileSource> {
        self.files.iter().map(|file| &file.source)
    }

    /// The file, if it is one alone.
    pub(crate) fn only(&mut self) -> Option<&mut FileSource> {
        match self.files.as_mut_slice() {
            [only] => Some(&mut only.source),
            _ => None,
        }
    }

    /// Adds interfaces that files have met since to the table.
    pub(crate) fn learn_interfaces(&mut self) {
        self.files.iter_mut().for_each(|file| file.take_interfaces(&mut self.interfaces));
    }

    /// The merged number of interface `id` of file `file`, once it is known.
    pub fn merged_id(&self, file: usize, id: InterfaceId) -> Option<InterfaceId> {
        self.files.get(file)?.ids.get(id.0 as usize).copied()
    }

    /// Releases the last run and finds the next. Returns whether there is one; `false` is the end of all files, but for
    /// those that [wait](FileSource::is_waiting).
    ///
    /// # Errors
    /// A file that breaks off is reported when all files have ended, so that the others are read whole: one call for
    /// each such file, then `false`.
    pub fn advance(&mut self) -> Result<bool, Error> {
        if let Some(run) = self.lent.take() {
            self.files[run.file].next = run.to;
        }
        for file in &mut self.files {
            if let Err(error) = file.refill(&mut self.interfaces) {
                self.errors.push(error);
            }
        }
        self.lent = self.next_run();
        match self.lent {
            Some(_) => Ok(true),
            None if self.errors.is_empty() => Ok(false),
            None => Err(self.errors.remove(0)),
        }
    }

    /// The run that the last [`advance`](Self::advance) found.
    pub fn batch(&self) -> Batch<'_> {
        match self.lent {
            Some(run) => self.files[run.file].source.batch_range(run.from, run.to),
            None => Batch::empty(),
        }
    }

    /// Bytes read of all files, and how many they have if all are files.
    pub fn position(&self) -> (u64, Option<u64>) {
        self.files().fold((0, Some(0)), |(read, len), file| {
            let (file_read, file_len) = file.position();
            (read + file_read, len.zip(file_len).map(|(a, b): (u64, u64)| a + b))
        })
    }

    fn next_run(&self) -> Option<Run> {
        let first = self.first(None)?;
        let file = &self.files[first];
        let from = file.next;
        let records = &file.source.batch().records()[from..];
        let len = match self.first(Some(first)) {
            None => records.len(),
            Some(_) if self.order == MergeOrder::Given => records.len(),
            Some(other) => {
                let limit = (self.files[other].time(), other);
                records.iter().take_while(|record| (Some(record.meta.timestamp), first) < limit).count()
            }
        };
        Some(Run { file: first, from, to: from + len })
    }

    /// The file whose next packet comes first, `except` left out.
    fn first(&self, except: Option<usize>) -> Option<usize> {
        let waiting = (0..self.files.len()).filter(|&index| Some(index) != except);
        let mut waiting = waiting.filter_map(|index| Some((self.files[index].time()?, index)));
        let first = match self.order {
            MergeOrder::Time => waiting.min(),
            MergeOrder::Given => waiting.next(),
        };
        first.map(|(_, index)| index)
    }
}

impl File {
    /// The time of its next packet, if it has one.
    fn time(&self) -> Option<Timestamp> {
        self.source.batch().records().get(self.next).map(|record| record.meta.timestamp)
    }

    /// Gets the next batch if this one has been lent.
    fn refill(&mut self, interfaces: &mut Vec<Interface>) -> Result<(), Error> {
        if self.is_ended || self.time().is_some() {
            return Ok(());
        }
        self.next = 0;
        let result = self.source.advance();
        self.is_ended = !matches!(result, Ok(true)) && !self.source.is_waiting();
        self.take_interfaces(interfaces);
        self.renumber();
        result.map(|_| ())
    }

    /// Sets the interface numbers of records to the merged ones; those of the first file have them already.
    fn renumber(&mut self) {
        let File { source, ids, .. } = self;
        if ids.iter().enumerate().all(|(index, id)| id.0 as usize == index) {
            return;
        }
        for record in source.records_mut() {
            record.meta.interface = ids[record.meta.interface.0 as usize];
        }
    }

    fn take_interfaces(&mut self, interfaces: &mut Vec<Interface>) {
        for interface in &self.source.interfaces()[self.ids.len()..] {
            self.ids.push(InterfaceId(interfaces.len() as u32));
            interfaces.push(interface.clone());
        }
    }
}
