//! One packet after another as text.

use tapline_packet::{Interface, Packet};

use crate::bytes::{Cut, Span};
use crate::context::Context;
use crate::names::{HostNames, Names, Services};
use crate::text::Text;
use crate::time::Clock;
use crate::transport::Connections;
use crate::{HexStyle, Options, hexdump, link};

/// Longest packet that is looked into: libpcap's `MAXIMUM_SNAPLEN`.
const PACKET_MAX: usize = 262_144;

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
    packets: u64,
}

impl Printer {
    /// A printer that has seen no packet yet. Reads `/etc/services` if ports are shown by name.
    pub fn new(options: Options) -> Printer {
        let mut names = Names::default();
        if options.port_names {
            names.set_services(Services::system());
            names.read_protocols();
        }
        Printer { options, names, clock: Clock::default(), connections: Connections::new(), packets: 0 }
    }

    /// Uses other names of ports than those of the system.
    pub fn set_services(&mut self, services: Services) {
        self.names.set_services(services);
    }

    /// Where names of hosts are looked up if [`Options::host_names`] is set; without it they stay numeric.
    pub fn set_host_names(&mut self, host_names: Box<dyn HostNames + Send>) {
        self.names.set_host_names(host_names);
    }

    /// The options it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Appends the text of one packet to `out`: one line or more, each ending in a line feed. Never fails: what is cut
    /// short or not known is shown as such.
    pub fn print(&mut self, packet: Packet<'_>, interface: &Interface, out: &mut Vec<u8>) {
        self.packets += 1;
        if self.options.number {
            print_number(out, self.packets);
        }
        let wire_len = packet.meta.wire_len as usize;
        if let Some(fault) = Fault::find(packet.data.len(), wire_len) {
            fault.print(out);
            return;
        }
        self.clock.print(out, &self.options, packet.meta.timestamp);
        let mut cx = Context::new(out, &self.options, &mut self.names, &mut self.connections, packet.meta);
        let span = Span { data: packet.data, length: wire_len };
        if let Err(Cut) = link::print(&mut cx, span, interface.link_type) {
            cx.cut();
        }
        let link_header_len = cx.link_header_len;
        print_bytes(out, self.options.hex, packet.data, link_header_len);
        out.text("\n");
    }
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
