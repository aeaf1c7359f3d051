//! Capture files as sources.
//!
//! Packets that were lost before they came into the file are in the account under [`LossPoint::File`].

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tapline_packet::{Batch, Interface, InterfaceId, Record};
use tapline_source::{Advance, Count, Error, Event, InterfaceAccount, Loss, LossPoint, PieceReader, Source};

use crate::{Excerpt, FileSource, InterfaceCounters, InterfaceStatistics, MergeOrder, MergedSource};

mod pieces;

pub use pieces::{FilePieces, PieceCounts};

/// One or more capture files.
pub struct FileInput {
    files: MergedSource,
    /// Packets lent of each interface.
    lent: Vec<u64>,
    excerpt: Option<Chosen>,
    stopped: bool,
    /// All of the files was read.
    is_read: bool,
    /// Faults of the files were reported.
    is_remarked: bool,
    /// The file is the answer of a daemon to a search; its comments are notes on it.
    is_answer: bool,
}

/// The packets that an excerpt has of the files.
struct Chosen {
    excerpt: Excerpt,
    /// Chosen records of the batch.
    records: Vec<Record>,
    /// Packets of each interface that are not among them.
    refused: Vec<u64>,
    /// An error behind the packets that are lent.
    fault: Option<crate::Error>,
}

impl FileInput {
    /// Prefix of a comment in the answer of a daemon: packets may be missing.
    pub const ANSWER_WARNING: &str = "warning: ";
    /// The loss in the account of such an answer.
    pub const ANSWER_LOSS: &str = "in parts of the store that were not searched";

    /// Opens a file by name.
    ///
    /// # Errors
    /// If it cannot be opened or its header is of no known format.
    pub fn open_file(path: &Path) -> Result<FileSource, Error> {
        Ok(FileSource::open(path)?)
    }

    /// Reads the rest of an open file; `name` is for messages.
    ///
    /// # Errors
    /// If its header is of no known format.
    pub fn open_handle(file: File, name: &str) -> Result<FileSource, Error> {
        Ok(FileSource::from_file(file, name)?)
    }

    /// Reads from a stream; `name` is for messages.
    ///
    /// # Errors
    /// If its header is of no known format.
    pub fn open_stream(reader: Box<dyn Read + Send>, name: &str) -> Result<FileSource, Error> {
        Ok(FileSource::from_reader(reader, name)?)
    }

    /// Files as one source, in this order.
    pub fn new(files: Vec<FileSource>, order: MergeOrder) -> FileInput {
        FileInput {
            files: MergedSource::new(files, order),
            lent: Vec::new(),
            excerpt: None,
            stopped: false,
            is_read: false,
            is_remarked: false,
            is_answer: false,
        }
    }

    /// Lends packets of the excerpt alone. The others are counted as refused by a filter.
    #[must_use]
    pub fn with_excerpt(self, excerpt: Excerpt) -> FileInput {
        let is_all = excerpt.is_all();
        let chosen = Chosen { excerpt, records: Vec::new(), refused: Vec::new(), fault: None };
        FileInput { excerpt: (!is_all).then_some(chosen), ..self }
    }

    /// The answer of a daemon to a search.
    pub fn of_answer(file: FileSource) -> FileInput {
        FileInput { is_answer: true, ..FileInput::new(vec![file], MergeOrder::Given) }
    }

    /// The notes of an answer.
    fn notes(&self) -> impl Iterator<Item = &str> {
        let files = self.files.files().filter(|_| self.is_answer);
        files.flat_map(FileSource::sections).flat_map(|section| &section.comments).map(String::as_str)
    }

    /// Counts the packets just lent. The files' own counters run ahead: they count parsed packets.
    fn count(&mut self) {
        self.lent.resize(self.files.interfaces().len(), 0);
        let mut batch = self.files.batch();
        if let Some(Chosen { excerpt, records, refused, fault }) = &mut self.excerpt {
            refused.resize(self.lent.len(), 0);
            *fault = excerpt.choose(&batch, records, refused).err();
            batch = Batch::new(batch.base(), records);
        }
        if let [only] = self.lent.as_mut_slice() {
            *only += batch.len() as u64;
            return;
        }
        for record in batch.records() {
            if let Some(lent) = self.lent.get_mut(record.meta.interface.0 as usize) {
                *lent += 1;
            }
        }
    }

    fn interface_account(
        &self,
        id: Option<InterfaceId>,
        file: &FileSource,
        index: usize,
        last: Option<&InterfaceStatistics>,
    ) -> InterfaceAccount {
        let lent = id.and_then(|id| self.lent.get(id.0 as usize).copied()).unwrap_or(0);
        let counters = file.counters().get(index).copied().unwrap_or_default();
        let name = file.interfaces().get(index).map_or("", |interface| interface.name.as_str());
        let name = if name.is_empty() { file.name().to_owned() } else { format!("{} {name}", file.name()) };
        let mut account = InterfaceAccount::of_file(&name, lent);
        let refused =
            self.excerpt.as_ref().zip(id).and_then(|(chosen, id)| chosen.refused.get(id.0 as usize));
        account.kernel_filtered = Count::Known(refused.copied().unwrap_or(0));
        account.losses = file_losses(last, counters);
        account.is_partial = !self.is_read;
        account
    }
}

/// Losses of the capture, as the file has them: its last statistics for the interface, or else the sum of
/// the drop counts of its packets.
fn file_losses(last: Option<&InterfaceStatistics>, counters: InterfaceCounters) -> Vec<Loss> {
    let loss = |counter: &str, count| Loss {
        place: LossPoint::File,
        counter: counter.to_owned(),
        count: Count::Known(count),
    };
    let Some(statistics) = last else {
        return if counters.drops > 0 { vec![loss("epb_dropcount", counters.drops)] } else { Vec::new() };
    };
    let named = [("isb_ifdrop", statistics.dropped), ("isb_osdrop", statistics.os_dropped)];
    named.into_iter().filter_map(|(name, count)| Some(loss(name, count?))).collect()
}

impl Source for FileInput {
    fn interfaces(&self) -> &[Interface] {
        self.files.interfaces()
    }

    fn advance(&mut self, _wait: Duration) -> Result<Advance, Error> {
        if self.stopped {
            return Ok(Advance::End);
        }
        if let Some(chosen) = &mut self.excerpt {
            let fault = chosen.fault.take();
            self.stopped = fault.is_some() || chosen.excerpt.is_over();
            if self.stopped {
                return fault.map_or(Ok(Advance::End), |fault| Err(fault.into()));
            }
        }
        match self.files.advance() {
            Ok(true) => {
                self.count();
                Ok(Advance::Batch)
            }
            Ok(false) if self.files.files().any(FileSource::is_waiting) => Ok(Advance::Idle),
            Ok(false) => {
                self.is_read = true;
                Ok(Advance::End)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn batch(&self) -> Batch<'_> {
        if self.stopped {
            return Batch::empty();
        }
        let all = self.files.batch();
        match &self.excerpt {
            // At the end the files lend nothing, and the records are those of the batch before.
            Some(chosen) if !all.is_empty() => Batch::new(all.base(), &chosen.records).cut(all.snap_len()),
            _ => all,
        }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        let mut accounts: Vec<(Option<InterfaceId>, InterfaceAccount)> = Vec::new();
        for (number, file) in self.files.files().enumerate() {
            let mut last = vec![None; file.interfaces().len()];
            for statistics in file.statistics() {
                if let Some(last) = last.get_mut(statistics.interface.0 as usize) {
                    *last = Some(statistics);
                }
            }
            accounts.extend(last.into_iter().enumerate().map(|(index, last)| {
                let id = self.files.merged_id(number, InterfaceId(index as u32));
                (id, self.interface_account(id, file, index, last))
            }));
        }
        accounts.sort_by_key(|(id, _)| *id); // the order of the table, in which files may take turns
        let mut accounts: Vec<InterfaceAccount> = accounts.into_iter().map(|(_, account)| account).collect();
        if self.notes().any(|note| note.starts_with(FileInput::ANSWER_WARNING)) {
            if accounts.is_empty() {
                accounts.extend(self.files.files().map(|file| InterfaceAccount::of_file(file.name(), 0)));
            }
            let (place, counter) = (LossPoint::File, FileInput::ANSWER_LOSS.to_owned());
            let loss = Loss { place, counter, count: Count::Unknown };
            accounts.iter_mut().take(1).for_each(|first| first.losses.push(loss.clone()));
        }
        accounts
    }

    /// Remarks on the files, once they were read.
    fn events(&mut self) -> Vec<Event> {
        if !(self.is_read || self.stopped) || std::mem::replace(&mut self.is_remarked, true) {
            return Vec::new();
        }
        let remark = |file: &FileSource| {
            Some(Event { interface: file.name().to_owned(), text: file.remark()?, is_warning: true })
        };
        let note = |text: &str| {
            let warning = text.strip_prefix(FileInput::ANSWER_WARNING);
            let (interface, text) = (String::new(), warning.unwrap_or(text).to_owned());
            Event { interface, text, is_warning: warning.is_some() }
        };
        self.files.files().filter_map(remark).chain(self.notes().map(note)).collect()
    }

    fn progress(&self) -> Option<(u64, u64)> {
        let (read, len) = self.files.position();
        Some((read, len?))
    }

    fn split(&mut self, threads: usize) -> Option<Arc<dyn PieceReader>> {
        let pieces = FilePieces::cut(self, threads, pieces::PIECE_LEN, pieces::FILE_LEN_MIN)?;
        Some(Arc::new(pieces))
    }
}

impl From<crate::Error> for Error {
    fn from(error: crate::Error) -> Error {
        Error::File(Box::new(error))
    }
}

impl From<crate::WriteError> for Error {
    fn from(error: crate::WriteError) -> Error {
        Error::File(Box::new(error))
    }
}
