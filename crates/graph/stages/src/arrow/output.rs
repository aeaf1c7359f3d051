//! The output: columns as record batches on a stream.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::ArrowError;
use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_source::{Error, OutputAccount};

use super::columns::Columns;

/// Rows of a batch at most.
pub(super) const ROWS_MAX: usize = 65_536;
/// A batch is written once its texts and bytes have this size. One packet more may be in it.
const BYTES_MAX: usize = 8 << 20;

/// Packets as record batches on a stream.
pub(super) struct ArrowOutput<W: Write> {
    columns: Columns,
    state: ArrowStream<W>,
    is_live: bool,
    account: OutputAccount,
}

/// The stream. Its schema is written before the first batch: opening must not write yet.
enum ArrowStream<W: Write> {
    New(Option<W>),
    Open(Box<StreamWriter<W>>),
    /// The output takes no more, for this reason.
    Broken(io::ErrorKind),
}

impl<W: Write + Send> ArrowOutput<W> {
    pub(super) fn new(columns: Columns, stream: W, is_live: bool) -> ArrowOutput<W> {
        let account = OutputAccount::of_written("arrow", 0);
        ArrowOutput { columns, state: ArrowStream::New(Some(stream)), is_live, account }
    }

    /// Writes the gathered rows.
    fn write_out(&mut self) -> Result<(), Error> {
        if self.columns.rows() == 0 {
            return Ok(());
        }
        let rows = self.columns.rows() as u64;
        let batch = self.columns.take();
        let written = batch.map_err(io_error).and_then(|batch| self.open()?.write(&batch).map_err(io_error));
        match written {
            Ok(()) => self.account.written += rows,
            Err(_) => self.account.lost += rows,
        }
        self.note(written)
    }

    /// The writer, once the schema is on the stream.
    fn open(&mut self) -> io::Result<&mut StreamWriter<W>> {
        if let ArrowStream::New(stream) = &mut self.state
            && let Some(stream) = stream.take()
        {
            let writer = StreamWriter::try_new(stream, self.columns.schema()).map_err(io_error)?;
            self.state = ArrowStream::Open(Box::new(writer));
        }
        match &mut self.state {
            ArrowStream::Open(writer) => Ok(writer),
            ArrowStream::Broken(kind) => Err((*kind).into()),
            ArrowStream::New(_) => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// A stream that failed once is not written to again: later bytes would not be a batch.
    fn note(&mut self, result: io::Result<()>) -> Result<(), Error> {
        result.map_err(|error| {
            self.state = ArrowStream::Broken(error.kind());
            Error::output("standard output", error)
        })
    }
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other),
    }
}

impl<W: Write + Send + 'static> Stage for ArrowOutput<W> {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let mut result = Ok(());
        for index in packets.selection.iter() {
            let packet = packets.batch.packet(index);
            let Some(interface) = packets.interfaces.get(packet.meta.interface.0 as usize) else {
                self.account.lost += 1; // a source's fault: it lent a packet of an interface that it does not name
                continue;
            };
            self.columns.push(packet, interface);
            if self.columns.rows() >= ROWS_MAX || self.columns.bytes() >= BYTES_MAX {
                let written = self.write_out();
                result = result.and(written);
            }
        }
        result
    }

    fn idle(&mut self) -> Result<(), Error> {
        if self.is_live { self.write_out() } else { Ok(()) }
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.write_out()?;
        let ended = self.open().and_then(|writer| writer.finish().map_err(io_error));
        self.note(ended)
    }

    fn counters(&self) -> StageCounters {
        let buffered = self.columns.rows() as u64;
        StageCounters::of_output(OutputAccount { buffered, ..self.account.clone() })
    }
}

impl Columns {
    /// The columns with these names, and commas between them.
    pub(super) fn parse(names: Option<&str>) -> Result<Columns, String> {
        match names {
            None => Ok(Columns::all()),
            Some(names) => Columns::named(names.split(',').map(str::trim)),
        }
    }

    /// Takes the gathered rows as a batch.
    fn take(&mut self) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(self.schema_ref(), self.finish())
    }
}
