//! A filter, compiled once for each link type of the packets.

use tapline_filter::{HandleKind, Options};
use tapline_ir::CompiledFilter;
use tapline_packet::{Interface, LinkType, Packet};

use crate::error::Error;

/// A filter on packets of several link types. A link type that cannot have the filter, such as one without Ethernet
/// addresses for `ether host`, has no packet that it accepts.
pub(super) struct LinkFilters {
    text: String,
    options: Options,
    /// The program of each requested link type (`None` accepts all packets), or the compiler's message.
    made: Vec<(LinkType, Result<Option<CompiledFilter>, String>)>,
    /// Packets of link types that cannot have the filter.
    unfit: u64,
}

impl LinkFilters {
    pub(super) fn new(text: &str, options: &Options) -> LinkFilters {
        // As for a capture file: VLAN tags are in the packets, and the netmask is not known.
        let options = Options { handle: HandleKind::Savefile, netmask: Some(0), ..options.clone() };
        LinkFilters { text: text.trim().to_owned(), options, made: Vec::new(), unfit: 0 }
    }

    pub(super) fn accepts(&mut self, interface: &Interface, packet: Packet<'_>) -> bool {
        match self.of(interface.link_type) {
            Ok(program) => program.as_ref().is_none_or(|program| program.run(packet) != 0),
            Err(_) => {
                self.unfit += 1;
                false
            }
        }
    }

    /// Packets since the last call of link types that cannot have the filter.
    pub(super) fn take_unfit(&mut self) -> u64 {
        std::mem::take(&mut self.unfit)
    }

    /// Checks that at least one link type supports the filter: one of the requested types, or Ethernet if none was
    /// requested.
    ///
    /// # Errors [`Error::Setting`] with the compiler's message.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if self.made.is_empty() {
            let _ = self.of(LinkType::ETHERNET);
        }
        match self.made.first() {
            Some((_, Err(error))) if self.made.iter().all(|(_, made)| made.is_err()) => {
                Err(Error::Setting(error.clone()))
            }
            _ => Ok(()),
        }
    }

    fn of(&mut self, link_type: LinkType) -> &Result<Option<CompiledFilter>, String> {
        let at = match self.made.iter().position(|(known, _)| *known == link_type) {
            Some(at) => at,
            None => {
                let options = Options { link_type, ..self.options.clone() };
                let compile = || tapline_filter::compile(&self.text, &options);
                let program = match self.text.is_empty() {
                    true => Ok(None),
                    false => compile().map(Some).map_err(|error| error.render(&self.text)),
                };
                self.made.push((link_type, program));
                self.made.len() - 1
            }
        };
        &self.made[at].1
    }
}
