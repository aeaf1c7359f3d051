//! `print`, `json`: packets as lines on a stream, text in tcpdump's form, or JSON.
//!
//! Lines gather in one reused buffer. It is written when it is full, when the source has nothing to lend, and, where
//! the stream is watched (`eager`), after each batch. A packet counts as written once the stream took its last byte.

use std::io::{self, Write};

use tapline_graph::{Out, Packets, Stage, StageCounters, TickContext};
use tapline_packet::{Interface, Packet};
use tapline_print::{Printer, json};
use tapline_source::{Error, OutputAccount};

use super::color;

/// The buffer is written out beyond this size.
const BUFFER_SIZE: usize = 64 * 1024;

/// The format of lines.
pub enum LineFormat {
    /// tcpdump's text.
    Text {
        /// The printer.
        printer: Box<Printer>,
        /// Whether lines get colour.
        colored: bool,
    },
    /// One object a packet.
    Json,
}

/// Packets as lines on a stream, which must not keep bytes back by itself.
pub struct LinesOutput<W> {
    format: LineFormat,
    stream: W,
    eager: bool,
    buffer: Vec<u8>,
    /// The offset of each line's end in the buffer.
    ends: Vec<usize>,
    number: u64,
    account: OutputAccount,
    /// The reason that the stream takes no more.
    broken: Option<io::ErrorKind>,
}

impl<W: Write + Send> LinesOutput<W> {
    /// With `eager` the lines are written after each batch, for a terminal.
    pub fn new(format: LineFormat, stream: W, eager: bool) -> LinesOutput<W> {
        let name = if matches!(format, LineFormat::Json) { "json" } else { "text" };
        let account = OutputAccount::of_written(name, 0);
        let buffer = Vec::with_capacity(2 * BUFFER_SIZE);
        LinesOutput { format, stream, eager, buffer, ends: Vec::new(), number: 0, account, broken: None }
    }

    fn line(&mut self, packet: Packet<'_>, interfaces: &[Interface]) {
        let Some(interface) = interfaces.get(packet.meta.interface.0 as usize) else {
            self.account.lost += 1; // a source's fault: it lent a packet of an interface that it does not name
            return;
        };
        self.number += 1;
        match &mut self.format {
            LineFormat::Json => json::packet(packet, interface, self.number, &mut self.buffer),
            LineFormat::Text { printer, colored } => {
                let start = self.buffer.len();
                printer.print(packet, interface, &mut self.buffer);
                if *colored {
                    color::paint(&mut self.buffer, start);
                }
            }
        }
        self.ends.push(self.buffer.len());
    }

    fn write_out(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let (taken, result) = match self.broken {
            Some(kind) => (0, Err(kind.into())),
            None => self.stream_out(),
        };
        let written = self.ends.partition_point(|&end| end <= taken) as u64;
        self.account.written += written;
        self.account.lost += self.ends.len() as u64 - written;
        self.buffer.clear();
        self.ends.clear();
        result.map_err(|error| {
            self.broken = Some(error.kind());
            Error::output("standard output", error)
        })
    }

    /// Writes the buffer: how many bytes the stream took, and why it took no more.
    fn stream_out(&mut self) -> (usize, io::Result<()>) {
        let mut taken = 0;
        while taken < self.buffer.len() {
            match self.stream.write(&self.buffer[taken..]) {
                Ok(0) => return (taken, Err(io::ErrorKind::WriteZero.into())),
                Ok(len) => taken += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (taken, Err(error)),
            }
        }
        (taken, Ok(()))
    }
}

impl<W: Write + Send + 'static> Stage for LinesOutput<W> {
    fn push(&mut self, packets: &mut Packets<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        let mut result = Ok(());
        for index in packets.selection.iter() {
            self.line(packets.batch.packet(index), packets.interfaces);
            if self.buffer.len() > BUFFER_SIZE {
                let written = self.write_out();
                result = result.and(written);
            }
        }
        if self.eager { result.and(self.write_out()) } else { result }
    }

    fn idle(&mut self) -> Result<(), Error> {
        self.write_out()
    }

    fn finish(&mut self, _: &TickContext<'_>, _: &mut Out<'_>) -> Result<(), Error> {
        self.write_out()
    }

    fn counters(&self) -> StageCounters {
        StageCounters::of_output(OutputAccount { buffered: self.ends.len() as u64, ..self.account.clone() })
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{Batch, ClockReading, LinkType, Meta, Record};

    use super::*;

    /// Takes `room` bytes, then says that the reader has gone.
    struct Pipe {
        room: usize,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let len = bytes.len().min(self.room);
            if len == 0 {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.room -= len;
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn write_packets(room: usize, batches: usize) -> (LinesOutput<Pipe>, Result<(), Error>) {
        let bytes = [0u8; 60];
        let meta = Meta { wire_len: 60, ..Meta::default() };
        let records = [Record { offset: 0, cap_len: 60, options_len: 0, meta }; 2];
        let mut sink = LinesOutput::new(LineFormat::Json, Pipe { room }, true);
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        let mut result = Ok(());
        for _ in 0..batches {
            let mut packets =
                Packets::all(Batch::new(&bytes, &records), &interfaces, ClockReading::default());
            result = result.and(sink.push(&mut packets, &mut Out::nowhere()));
        }
        (sink, result)
    }

    fn written_and_lost(sink: &LinesOutput<Pipe>) -> (u64, u64) {
        let account = sink.counters().output.expect("it is an output");
        (account.written, account.lost)
    }

    #[test]
    fn packets_count_once_the_stream_took_them() {
        let (sink, result) = write_packets(1 << 20, 3);
        assert!(result.is_ok());
        assert_eq!(written_and_lost(&sink), (6, 0));
    }

    #[test]
    fn a_closed_pipe_loses_only_unread_lines() {
        let (sink, result) = write_packets(0, 3);
        assert!(matches!(result, Err(Error::BrokenPipe { .. })));
        assert_eq!(written_and_lost(&sink), (0, 6));
    }

    /// Lines that the stream took whole are written, at whichever byte it stops.
    #[test]
    fn whole_lines_count_at_every_failing_byte() {
        let room = 1 << 20;
        let (sink, _) = write_packets(room, 3);
        let total = room - sink.stream.room;
        let line = total / 6;
        for room in 0..total {
            let (sink, result) = write_packets(room, 3);
            assert!(result.is_err());
            let (written, lost) = written_and_lost(&sink);
            // Lines differ in the number of the packet, which has one digit here.
            assert_eq!((written, lost), ((room / line) as u64, 6 - (room / line) as u64), "{room} bytes");
        }
    }
}
