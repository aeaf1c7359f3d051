//! One packet after another as text.

use tapline_packet::{Direction, Interface, LinkType, Meta, Packet, PacketType, VlanTag};

use crate::app::isakmp::Initiators;
use crate::app::nfs::Calls;
use crate::bytes::{Cut, Span};
use crate::context::Context;
use crate::names::{HostNames, Names, Services};
use crate::text::Text;
use crate::time::Clock;
use crate::transport::Connections;
use crate::{HexStyle, Options, hexdump, link};

/// Longest packet that is looked into: libpcap's `MAXIMUM_SNAPLEN`.
const PACKET_MAX: usize = 262_144;

/// Offset and length of a VLAN tag in a frame.
const TAG_AT: usize = 12;
const TAG_LEN: usize = 4;

/// Prints packets in the order in which it is handed them.
///
/// ```
/// use tapline_packet::{Interface, LinkType, Meta, Packet};
/// use tapline_print::{Options, Printer, TimeStyle};
///
/// let mut printer = Printer::new(Options { time: TimeStyle::None, ..Options::default() });
/// let frame = [
///     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, // Ethernet, ARP
///     0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
/// ];
/// let meta = Meta { wire_len: frame.len() as u32, ..Meta::default() };
/// let mut out = Vec::new();
/// printer.print(Packet { data: &frame, meta: &meta }, &Interface::new("eth0", LinkType::ETHERNET), &mut out);
/// assert_eq!(out, b"ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28\n");
/// ```
pub struct Printer {
    options: Options,
    names: Names,
    clock: Clock,
    connections: Connections,
    calls: Calls,
    initiators: Initiators,
    packets: u64,
    /// Room for frames whose VLAN tag is put back.
    tagged: Vec<u8>,
}

impl Printer {
    /// A printer that has seen no packet yet. Reads `/etc/services` if ports are shown by name.
    pub fn new(options: Options) -> Printer {
        let mut names = Names::default();
        if options.port_names {
            names.set_services(Services::system());
        }
        Printer {
            options,
            names,
            clock: Clock::default(),
            connections: Connections::new(),
            calls: Calls::new(),
            initiators: Initiators::new(),
            packets: 0,
            tagged: Vec::new(),
        }
    }

    /// Uses other names of ports than those of the system.
    pub fn set_services(&mut self, services: Services) {
        self.names.set_services(services);
    }

    /// Sets the source of host names for [`Options::host_names`]; without it addresses stay numeric.
    pub fn set_host_names(&mut self, host_names: Box<dyn HostNames + Send>) {
        self.names.set_host_names(host_names);
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Appends the text of one packet to `out`: one line or more, each ending in a line feed. Never fails: cut or
    /// unknown headers are shown as such.
    pub fn print(&mut self, packet: Packet<'_>, interface: &Interface, out: &mut Vec<u8>) {
        self.packets += 1;
        if self.options.number {
            print_number(out, self.packets);
        }
        match packet.meta.vlan {
            Some(tag) if interface.link_type == LinkType::ETHERNET && packet.data.len() >= TAG_AT => {
                let mut tagged = std::mem::take(&mut self.tagged);
                put_tag_back(&mut tagged, packet.data, tag);
                let wire_len = packet.meta.wire_len as usize + TAG_LEN;
                self.print_frame(Packet { data: &tagged, ..packet }, wire_len, interface, out);
                self.tagged = tagged;
            }
            _ => self.print_frame(packet, packet.meta.wire_len as usize, interface, out),
        }
    }

    fn print_frame(&mut self, packet: Packet<'_>, wire_len: usize, interface: &Interface, out: &mut Vec<u8>) {
        if let Some(fault) = Fault::find(packet.data.len(), wire_len) {
            fault.print(out);
            return;
        }
        self.clock.print(out, &self.options, packet.meta.timestamp);
        if self.options.interface {
            print_interface(out, &interface.name, packet.meta);
        }
        if packet.meta.label != 0 {
            print_label(out, packet.meta.label);
        }
        let mut cx = Context::new(
            out,
            &self.options,
            &mut self.names,
            &mut self.connections,
            &mut self.calls,
            &mut self.initiators,
            packet.meta,
        );
        let span = Span { data: packet.data, length: wire_len };
        if let Err(Cut) = link::print(&mut cx, span, interface.link_type) {
            cx.cut();
        }
        let link_header_len = cx.link_header_len;
        print_bytes(out, self.options.hex, packet.data, link_header_len);
        out.text("\n");
    }
}

/// Writes the frame as it was on the wire, with the tag that the NIC or the kernel took out.
fn put_tag_back(tagged: &mut Vec<u8>, data: &[u8], tag: VlanTag) {
    tagged.clear();
    let (addresses, rest) = data.split_at(TAG_AT);
    tagged.extend_from_slice(addresses);
    tagged.extend_from_slice(&tag.tpid.to_be_bytes());
    tagged.extend_from_slice(&tag.tci.to_be_bytes());
    tagged.extend_from_slice(rest);
}

/// `%-5s %-3s `: the name, and how the packet was addressed, in the words that tcpdump has for cooked captures.
fn print_interface(out: &mut Vec<u8>, name: &str, meta: &Meta) {
    out.visible_all(name.as_bytes());
    out.text(&"     "[name.len().min(5)..]);
    out.text(match (meta.direction, meta.packet_type) {
        (Direction::Unknown, PacketType::Host) => " ?   ",
        (Direction::Out, _) | (_, PacketType::Outgoing) => " Out ",
        (_, PacketType::Host) => " In  ",
        (_, PacketType::Broadcast) => " B   ",
        (_, PacketType::Multicast) => " M   ",
        (_, PacketType::OtherHost) => " P   ",
    });
}

/// `label %u `: not of tcpdump, whose packets have none.
fn print_label(out: &mut Vec<u8>, label: u8) {
    out.text("label ");
    for power in [100, 10, 1] {
        if label >= power || power == 1 {
            out.push(b'0' + label / power % 10);
        }
    }
    out.push(b' ');
}

/// `%5u` and two spaces.
fn print_number(out: &mut Vec<u8>, number: u64) {
    for limit in [10, 100, 1000, 10_000] {
        if number < limit {
            out.text(" ");
        }
    }
    out.dec(number);
    out.text("  ");
}

fn print_bytes(out: &mut Vec<u8>, style: HexStyle, data: &[u8], link_header_len: usize) {
    let inner = data.get(link_header_len..).unwrap_or(&[]);
    match style {
        HexStyle::None => {}
        HexStyle::Hex => hexdump::hex(out, b"\n\t", inner, 0),
        HexStyle::HexLink => hexdump::hex(out, b"\n\t", data, 0),
        HexStyle::HexAscii => hexdump::hex_and_ascii(out, b"\n\t", inner, 0),
        HexStyle::HexAsciiLink => hexdump::hex_and_ascii(out, b"\n\t", data, 0),
        HexStyle::Ascii if inner.is_empty() => {}
        HexStyle::Ascii => hexdump::ascii(out, inner),
        HexStyle::AsciiLink => hexdump::ascii(out, data),
    }
}

/// Lengths that make no sense, so that the packet is not looked into.
struct Fault {
    captured: usize,
    wire: usize,
}

impl Fault {
    fn find(captured: usize, wire: usize) -> Option<Fault> {
        let sound = captured != 0 && wire >= captured && captured <= PACKET_MAX && wire <= PACKET_MAX;
        (!sound).then_some(Fault { captured, wire })
    }

    fn print(&self, out: &mut Vec<u8>) {
        let Fault { captured, wire } = *self;
        out.text("[Invalid header:");
        let start = out.len();
        let mut part = |is_so: bool, write: &dyn Fn(&mut Vec<u8>)| {
            if is_so {
                if out.len() > start {
                    out.text(",");
                }
                out.text(" ");
                write(out);
            }
        };
        part(captured == 0, &|o| o.text("caplen==0"));
        part(wire == 0, &|o| o.text("len==0"));
        part(wire != 0 && wire < captured, &|o| {
            o.text("len(");
            o.dec(wire);
            o.text(") < caplen(");
            o.dec(captured);
            o.text(")");
        });
        for (name, value) in [("caplen(", captured), ("len(", wire)] {
            part(value > PACKET_MAX, &|o| {
                o.text(name);
                o.dec(value);
                o.text(") > ");
                o.dec(PACKET_MAX);
            });
        }
        out.text("]\n");
    }
}

#[cfg(test)]
mod tests {
    use tapline_packet::Checksum;

    use super::*;
    use crate::TimeStyle;

    fn printed(options: Options, data: &[u8], meta: Meta) -> String {
        let mut out = Vec::new();
        let interface = Interface::new("", LinkType::ETHERNET);
        Printer::new(options).print(Packet { data, meta: &meta }, &interface, &mut out);
        String::from_utf8(out).expect("ASCII")
    }

    fn options() -> Options {
        Options { time: TimeStyle::None, port_names: false, ..Options::default() }
    }

    #[test]
    fn interfaces_are_told_apart_if_wanted() {
        let meta = Meta { wire_len: 14, packet_type: PacketType::Outgoing, ..Meta::default() };
        let mut printer = Printer::new(Options { interface: true, ..options() });
        let (mut out, frame) = (Vec::new(), [0x88; 14]);
        for name in ["lo", "enp1s0\x1b"] {
            printer.print(
                Packet { data: &frame, meta: &meta },
                &Interface::new(name, LinkType::ETHERNET),
                &mut out,
            );
        }
        let text = String::from_utf8(out).expect("ASCII");
        assert!(text.starts_with("lo    Out 88:88"), "{text}");
        assert!(text.contains("\nenp1s0^[ Out 88:88"), "{text}");
    }

    #[test]
    fn a_stripped_tag_is_shown_as_if_it_were_there() {
        let mut frame = vec![0xff; 6];
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 1, 0x12, 0x34, 1, 2]);
        let tag = VlanTag { tpid: 0x8100, tci: 0x6007 };
        let meta = Meta { wire_len: 16, vlan: Some(tag), ..Meta::default() };
        let text = printed(Options { link_header: true, hex: HexStyle::HexLink, ..options() }, &frame, meta);
        assert_eq!(
            text,
            "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, ethertype 802.1Q (0x8100), length 20: vlan 7, p 3, \
             ethertype Unknown (0x1234), \n\
             \t0x0000:  ffff ffff ffff 0200 0000 0001 8100 6007\n\
             \t0x0010:  1234 0102\n"
        );
    }

    #[test]
    fn lengths_that_make_no_sense_are_said() {
        let cases = [
            (0, 0, "[Invalid header: caplen==0, len==0]\n"),
            (3, 2, "[Invalid header: len(2) < caplen(3)]\n"),
            (2, 300_000, "[Invalid header: len(300000) > 262144]\n"),
        ];
        for (captured, wire_len, expected) in cases {
            let meta = Meta { wire_len, ..Meta::default() };
            assert_eq!(printed(options(), &vec![0; captured], meta), expected);
        }
    }

    #[test]
    fn numbers_are_padded() {
        let mut out = Vec::new();
        print_number(&mut out, 7);
        print_number(&mut out, 123_456);
        assert_eq!(out, b"    7  123456  ");
    }

    /// An IPv4 packet in `levels` others.
    fn nested_ipv4(levels: usize) -> Vec<u8> {
        let mut packet = Vec::new();
        for level in 0..=levels {
            let length = (20 + packet.len()) as u16;
            let protocol = if level == 0 { 59 } else { 4 };
            let mut outer = vec![0x45, 0, (length >> 8) as u8, length as u8, 0, 0, 0, 0, 64, protocol, 0, 0];
            outer.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
            outer.extend_from_slice(&packet);
            packet = outer;
        }
        packet
    }

    fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    #[test]
    fn tunnels_in_tunnels_have_an_end() {
        let frame = ethernet(0x0800, &nested_ipv4(1000));
        let text = printed(options(), &frame, Meta { wire_len: frame.len() as u32, ..Meta::default() });
        assert!(text.ends_with(" [nested too deep]\n"), "{text}");
        assert_eq!(text.matches("IP 10.0.0.1").count(), 24);
        let frame = ethernet(0x0800, &nested_ipv4(3));
        let text = printed(options(), &frame, Meta { wire_len: frame.len() as u32, ..Meta::default() });
        assert!(text.ends_with("no next header\n"), "{text}");
    }

    #[test]
    fn the_kernels_word_on_a_checksum_holds() {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend_from_slice(&[0, 80, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0x12, 0x34, 0, 0]);
        let frame = ethernet(0x0800, &packet);
        for (checksum, expected) in [
            (Checksum::Unknown, "cksum 0x1234 (incorrect -> "),
            (Checksum::Valid, "cksum 0x1234 (correct)"),
            (Checksum::NotReady, "cksum 0x1234 (left to the NIC)"),
        ] {
            let meta = Meta { wire_len: frame.len() as u32, checksum, ..Meta::default() };
            let text = printed(Options { verbose: 1, ..options() }, &frame, meta);
            assert!(text.contains(expected), "{checksum:?}: {text}");
        }
    }
}
