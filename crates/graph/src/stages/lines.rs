//! Packets as lines on a stream: text in tcpdump's form, or JSON.
//!
//! Lines gather in one reused buffer. It is written when it is full, when the source has nothing to lend, and, where
//! somebody watches (`eager`), after each batch. A packet counts as written once the stream took its last byte.

use std::io::{self, Write};

use tapline_capture::{Error, InterfaceAccount, OutputAccount, Sink};
use tapline_packet::{Batch, Interface, Packet, Selection, Timestamp};
use tapline_print::{Printer, json};

use super::color;

/// The buffer is written out beyond this size.
const BUFFER_SIZE: usize = 64 * 1024;

/// What a line says.
pub enum Format {
    /// tcpdump's text.
    Text {
        /// What prints.
        printer: Box<Printer>,
        /// Whether lines get colour.
        colored: bool,
    },
    /// One object a packet.
    Json,
}

/// Packets as lines on a stream.
pub struct LinesSink<W> {
    format: Format,
    stream: W,
    eager: bool,
    buffer: Vec<u8>,
    buffered: u64,
    number: u64,
    account: OutputAccount,
    broken: bool,
}

impl<W: Write + Send> LinesSink<W> {
    /// `eager` writes after each batch, for people who watch.
    pub fn new(format: Format, stream: W, eager: bool) -> LinesSink<W> {
        let name = if matches!(format, Format::Json) { "json" } else { "text" }.to_owned();
        let account = OutputAccount { name, ..OutputAccount::default() };
        let buffer = Vec::with_capacity(2 * BUFFER_SIZE);
        LinesSink { format, stream, eager, buffer, buffered: 0, number: 0, account, broken: false }
    }

    fn line(&mut self, packet: Packet<'_>, interfaces: &[Interface]) {
        let Some(interface) = interfaces.get(packet.meta.interface.0 as usize) else {
            self.account.lost += 1; // a source's fault: it lent a packet of an interface that it does not name
            return;
        };
        self.number += 1;
        self.buffered += 1;
        match &mut self.format {
            Format::Json => json::packet(packet, interface, self.number, &mut self.buffer),
            Format::Text { printer, colored } => {
                let start = self.buffer.len();
                printer.print(packet, interface, &mut self.buffer);
                if *colored {
                    color::paint(&mut self.buffer, start);
                }
            }
        }
    }

    fn write_out(&mut self) -> Result<(), Error> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = if self.broken { Err(io::ErrorKind::BrokenPipe.into()) } else { self.stream_out() };
        self.buffer.clear();
        let packets = std::mem::take(&mut self.buffered);
        match result {
            Ok(()) => self.account.written += packets,
            Err(error) => {
                self.broken = true;
                self.account.lost += packets;
                return Err(Error::output("standard output", error));
            }
        }
        Ok(())
    }

    fn stream_out(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.buffer)?;
        self.stream.flush()
    }
}

impl<W: Write + Send> Sink for LinesSink<W> {
    fn write(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        interfaces: &[Interface],
    ) -> Result<(), Error> {
        let mut result = Ok(());
        for index in selection.iter() {
            self.line(batch.packet(index), interfaces);
            if self.buffer.len() > BUFFER_SIZE {
                let written = self.write_out();
                result = result.and(written);
            }
        }
        if self.eager { result.and(self.write_out()) } else { result }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.write_out()
    }

    fn finish(&mut self, _: Timestamp, _: &[InterfaceAccount]) -> Result<(), Error> {
        self.write_out()
    }

    fn account(&self) -> OutputAccount {
        OutputAccount { buffered: self.buffered, ..self.account.clone() }
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::{LinkType, Meta, Record};

    use super::*;

    /// Takes `room` bytes, then says that the reader has gone.
    struct Pipe {
        room: usize,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room < bytes.len() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.room -= bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn write_packets(room: usize, batches: usize) -> (LinesSink<Pipe>, Result<(), Error>) {
        let bytes = [0u8; 60];
        let meta = Meta { wire_len: 60, ..Meta::default() };
        let records = [Record { offset: 0, cap_len: 60, options_len: 0, meta }; 2];
        let mut selection = Selection::none();
        selection.select_all(2);
        let mut sink = LinesSink::new(Format::Json, Pipe { room }, true);
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        let mut result = Ok(());
        for _ in 0..batches {
            result = result.and(sink.write(&Batch::new(&bytes, &records), &selection, &interfaces));
        }
        (sink, result)
    }

    #[test]
    fn packets_count_once_the_stream_took_them() {
        let (sink, result) = write_packets(1 << 20, 3);
        assert!(result.is_ok());
        assert_eq!((sink.account().written, sink.account().lost), (6, 0));
    }

    #[test]
    fn a_reader_that_left_costs_what_it_did_not_take() {
        let (sink, result) = write_packets(0, 3);
        assert!(matches!(result, Err(Error::BrokenPipe { .. })));
        assert_eq!((sink.account().written, sink.account().lost), (0, 6));
    }
}
