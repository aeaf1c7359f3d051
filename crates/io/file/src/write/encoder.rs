//! Packets as records of the formats that are written.

use tapline_packet::{Batch, Interface, InterfaceId};

use super::options::{Format, WriteOptions};
use super::{erf, pcap, pcapng};
use crate::error::WriteError;
use crate::section::InterfaceStatistics;

/// A format, with what its files have described so far.
pub(super) enum Encoder {
    Pcap {
        encoder: pcap::Encoder,
        /// The last interface whose link type was found to fit, and the most bytes of its packets.
        fits: Option<(InterfaceId, u32)>,
    },
    /// The interfaces described so far.
    Pcapng {
        interfaces: Vec<Interface>,
    },
    Erf,
}

impl Encoder {
    /// The encoder of the format of `options`. For pcap the first interface gives the link type.
    pub(super) fn new(options: &WriteOptions, interfaces: &[Interface]) -> Encoder {
        match options.format {
            Format::Pcap => {
                let known: Vec<Interface> =
                    interfaces.iter().map(|interface| described(interface, options)).collect();
                let encoder = pcap::Encoder::new(options.precision, &known, options.snap_len);
                Encoder::Pcap { encoder, fits: None }
            }
            Format::Pcapng => Encoder::Pcapng { interfaces: interfaces.to_vec() },
            Format::Erf => Encoder::Erf,
        }
    }

    /// Whether files have blocks without packets, and packets without a time.
    pub(super) fn has_blocks(&self) -> bool {
        matches!(self, Encoder::Pcapng { .. })
    }

    /// The reason why a file cannot hold packets of this interface; `None` if it can.
    pub(super) fn misfit(&self, id: InterfaceId, interface: &Interface) -> Option<String> {
        match self {
            Encoder::Pcap { encoder, .. } if encoder.link_type != interface.link_type => Some(format!(
                "a pcap file holds one link type, here {}, and theirs is {}; write pcapng (a name that ends in .pcapng), or have all of one type (-y LINUX_SLL2)",
                encoder.link_type, interface.link_type
            )),
            Encoder::Erf if !erf::holds(interface.link_type) => {
                Some(format!("ERF has no record for link type {}; write pcapng", interface.link_type))
            }
            Encoder::Erf if id.0 >= erf::INTERFACES_MAX => {
                let most = erf::INTERFACES_MAX;
                Some(format!(
                    "ERF distinguishes {most} interfaces, and this one comes after them; write pcapng"
                ))
            }
            _ => None,
        }
    }

    /// Appends the beginning of a file. `repeated` are blocks for each file.
    pub(super) fn header(&self, buffer: &mut Vec<u8>, options: &WriteOptions, repeated: &[u8]) {
        match self {
            Encoder::Pcap { encoder, .. } => encoder.header(buffer),
            Encoder::Pcapng { interfaces } => {
                pcapng::section_header(buffer, &options.section);
                for interface in interfaces {
                    pcapng::interface_description(buffer, &described(interface, options), options.snap_len);
                }
                buffer.extend_from_slice(repeated);
            }
            Encoder::Erf => {}
        }
    }

    /// Appends descriptions of interfaces that are new in the source's table.
    pub(super) fn describe_new_interfaces(
        &mut self,
        buffer: &mut Vec<u8>,
        interfaces: &[Interface],
        options: &WriteOptions,
    ) {
        let Encoder::Pcapng { interfaces: known } = self else { return };
        for interface in interfaces.get(known.len()..).unwrap_or(&[]) {
            pcapng::interface_description(buffer, &described(interface, options), options.snap_len);
            known.push(interface.clone());
        }
    }

    /// Appends a packet. Returns whether the format can hold it.
    #[inline]
    pub(super) fn packet(
        &mut self,
        buffer: &mut Vec<u8>,
        batch: &Batch<'_>,
        index: usize,
        interfaces: &[Interface],
        options: &WriteOptions,
    ) -> Result<bool, WriteError> {
        let packet = batch.packet(index);
        let id = packet.meta.interface;
        match self {
            Encoder::Pcap { encoder, fits } => {
                let snap_len = match *fits {
                    Some((known, snap_len)) if known == id => snap_len,
                    _ => {
                        let interface = interface(interfaces, id)?;
                        if interface.link_type != encoder.link_type {
                            return Ok(false);
                        }
                        let limit = match options.keeps_all_bytes {
                            true => encoder.limit(0),
                            false => encoder.limit(interface.snap_len),
                        };
                        *fits = Some((id, limit));
                        limit
                    }
                };
                encoder.packet(buffer, &packet, snap_len);
            }
            Encoder::Pcapng { interfaces } => {
                let interface = interface(interfaces, id)?;
                let limit = match options.keeps_all_bytes {
                    true => 0,
                    false => pcapng::limit(interface, options.snap_len),
                };
                pcapng::packet(buffer, &packet, interface.link_type, limit, batch.options(index));
            }
            Encoder::Erf => {
                let interface = interface(interfaces, id)?;
                if !erf::holds(interface.link_type) || id.0 >= erf::INTERFACES_MAX {
                    return Ok(false);
                }
                let limit = pcapng::limit(interface, options.snap_len);
                return Ok(erf::packet(buffer, &packet, interface, limit));
            }
        }
        Ok(true)
    }

    /// Appends the counters of interfaces that are described.
    pub(super) fn statistics(&self, buffer: &mut Vec<u8>, statistics: &[InterfaceStatistics]) {
        let Encoder::Pcapng { interfaces } = self else { return };
        for statistics in statistics.iter().filter(|s| (s.interface.0 as usize) < interfaces.len()) {
            pcapng::interface_statistics(buffer, statistics);
        }
    }

    /// The longest run of whole records at the beginning of `bytes`: its length, and packets in it.
    pub(super) fn whole_records(&self, bytes: &[u8], has_packets: bool) -> (usize, u64) {
        let (mut end, mut packets) = (0, 0);
        // Without packets the bytes are headers; that of pcap is not a record, and half of it is nothing.
        if !has_packets && matches!(self, Encoder::Pcap { .. }) {
            return (0, 0);
        }
        while let Some(rest) = bytes.get(end..) {
            let record = match self {
                Encoder::Pcap { .. } => pcap::record_len(rest).map(|len| (len, true)),
                Encoder::Pcapng { .. } => pcapng::block_len(rest),
                Encoder::Erf => erf::record_len(rest).map(|len| (len, true)),
            };
            match record {
                Some((record_len, is_packet)) if record_len <= rest.len() => {
                    end += record_len;
                    packets += u64::from(is_packet);
                }
                _ => break,
            }
        }
        (end, packets)
    }
}

/// An interface as files describe it.
fn described(interface: &Interface, options: &WriteOptions) -> Interface {
    let snap_len = if options.keeps_all_bytes { 0 } else { interface.snap_len };
    Interface { snap_len, ..interface.clone() }
}

fn interface(interfaces: &[Interface], id: InterfaceId) -> Result<&Interface, WriteError> {
    interfaces.get(id.0 as usize).ok_or_else(|| {
        let count = interfaces.len();
        WriteError::Options(format!("a packet names interface {}, but only {count} are known", id.0))
    })
}
