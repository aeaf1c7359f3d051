//! A source of packets that a recipe generates.

use std::time::Duration;

use tapline_generator::{Batches, Generator, Recipe, SyntaxError};
use tapline_packet::{Batch, Interface, LinkType, Timestamp};
use tapline_source::{Advance, Error, InterfaceAccount, Source};

/// Source of the packets of a recipe. Time stamps come from the recipe. The source does not wait for these times; the
/// sender of the packets does.
pub struct GeneratedSource {
    batches: Batches,
    interfaces: Vec<Interface>,
    /// Packets in the batches returned so far.
    lent: u64,
    is_stopped: bool,
}

impl GeneratedSource {
    /// Name of the only interface of the source.
    pub const INTERFACE: &str = "generate";

    /// Parses a recipe and creates its source. `now` is the time of the first packet if the recipe has `start=now`.
    ///
    /// # Errors
    /// Returns the error of the recipe, with its position in the text.
    pub fn new(text: &str, now: Timestamp) -> Result<GeneratedSource, SyntaxError> {
        let recipe = Recipe::parse(text)?;
        let generator = Generator::new(&recipe).map_err(|error| error.in_text(text))?;
        let start = recipe.start_ns.map_or(now, Timestamp::from_nanos);
        let description = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let interface = Interface {
            description,
            // The generator makes frames without a check sequence.
            fcs_len: Some(0),
            ..Interface::new(GeneratedSource::INTERFACE, LinkType::ETHERNET)
        };
        Ok(GeneratedSource {
            batches: Batches::new(generator, start),
            interfaces: vec![interface],
            lent: 0,
            is_stopped: false,
        })
    }
}

impl GeneratedSource {
    /// Sets the time stamp of the first packet. Call it before the first packet is requested.
    #[must_use]
    pub fn starting(self, start: Timestamp) -> GeneratedSource {
        GeneratedSource { batches: self.batches.starting(start), ..self }
    }

    /// Writes `now` as the time of sending into the marks of the current batch, for senders that do not keep to the
    /// times of the recipe.
    pub fn restamp(&mut self, now: Timestamp) {
        self.batches.restamp(now);
    }

    /// Whether the recipe has a rate. Without one, senders ignore the times of packets.
    pub fn is_paced(&self) -> bool {
        self.batches.generator().is_paced()
    }
}

impl Source for GeneratedSource {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn advance(&mut self, _wait: Duration) -> Result<Advance, Error> {
        if self.is_stopped
            || !self.batches.advance().map_err(|error| Error::source(GeneratedSource::INTERFACE, error))?
        {
            self.is_stopped = true;
            return Ok(Advance::End);
        }
        self.lent += self.batches.batch().len() as u64;
        Ok(Advance::Batch)
    }

    fn batch(&self) -> Batch<'_> {
        if self.is_stopped { Batch::empty() } else { self.batches.batch() }
    }

    fn stop(&mut self) -> Result<(), Error> {
        self.is_stopped = true;
        Ok(())
    }

    fn account(&mut self) -> Vec<InterfaceAccount> {
        vec![InterfaceAccount::of_generated(GeneratedSource::INTERFACE, self.lent)]
    }

    fn progress(&self) -> Option<(u64, u64)> {
        let (made, count) = self.batches.generator().progress();
        Some((made, count?))
    }
}
