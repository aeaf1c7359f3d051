//! The replacement for native code in a build without a code generator.

use std::convert::Infallible;

use tapline_bpf::PacketFilter;
use tapline_ir::{Ir, Memory};
use tapline_packet::{Batch, Packet, Selection};

use crate::Error;

/// Native code, of which this build makes none: there is no value of this type.
#[derive(Debug)]
pub struct Native(Infallible);

impl Native {
    /// Makes no native code.
    ///
    /// # Errors
    /// Always [`Error::NotBuilt`].
    pub fn compile(_: &Ir) -> Result<Native, Error> {
        Err(Error::NotBuilt)
    }

    /// Runs on one packet.
    pub fn run(&self, _: Packet<'_>, _: &Memory) -> u64 {
        match self.0 {}
    }

    /// Keeps the packets that are accepted.
    pub fn select(&self, _: &Batch<'_>, _: &Memory, _: &mut Selection) {
        match self.0 {}
    }

    /// Packets that were rejected because a function of the program panicked.
    pub fn panics(&self) -> u64 {
        match self.0 {}
    }

    /// The machine code for batches.
    pub fn code(&self) -> &[u8] {
        match self.0 {}
    }

    /// The machine code as text.
    ///
    /// # Errors
    /// None: there is no native code to print.
    pub fn assembly(&self) -> Result<String, Error> {
        match self.0 {}
    }
}

impl PacketFilter for Native {
    fn accepts(&self, _: Packet<'_>) -> bool {
        match self.0 {}
    }

    fn select(&self, _: &Batch<'_>, _: &mut Selection) {
        match self.0 {}
    }
}
