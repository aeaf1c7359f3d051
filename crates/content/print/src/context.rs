//! The context of every protocol printer: output buffer, options, and state.
//!
//! ```text
//! Printer --> Context { out, options, names, connections, calls, initiators, meta, protocol } --> link --> net --> transport --> app
//! ```
//!
//! A printer is a function `fn(&mut Context, Span, ...) -> Printed`. It sets [`Context::protocol`] before its first
//! read: that is the name in `[|protocol]` when a read fails and the failure is passed on with `?`. One that prints its
//! own mark with [`Context::cut`] and returns `Ok` lets the printers around it go on.

use std::fmt;
use std::net::IpAddr;

use tapline_packet::Meta;

use crate::Options;
use crate::app::isakmp::Initiators;
use crate::app::nfs::Calls;
use crate::bytes::{Printed, Span};
use crate::hexdump;
use crate::names::{Names, PortKind, organization};
use crate::text::Text;
use crate::transport::Connections;

/// Maximum nesting depth of headers (tunnels, quoted packets) before the rest is left as it is.
const DEPTH_MAX: u32 = 24;

/// The context of a printer while it prints one packet.
pub(crate) struct Context<'c> {
    /// The output buffer.
    pub(crate) out: &'c mut Vec<u8>,
    /// The requested options.
    pub(crate) options: &'c Options,
    /// Names of hosts, ports and protocols.
    pub(crate) names: &'c mut Names,
    /// TCP connections seen so far.
    pub(crate) connections: &'c mut Connections,
    /// Remote calls that wait for their reply.
    pub(crate) calls: &'c mut Calls,
    /// Initiators of IKE exchanges.
    pub(crate) initiators: &'c mut Initiators,
    /// The packet's metadata.
    pub(crate) meta: &'c Meta,
    /// The protocol that `[|protocol]` names.
    pub(crate) protocol: &'static str,
    /// Bytes that `-x`, `-X` and `-A` leave out at the start: the link-layer header.
    pub(crate) link_header_len: usize,
    depth: u32,
}

impl<'c> Context<'c> {
    pub(crate) fn new(
        out: &'c mut Vec<u8>,
        options: &'c Options,
        names: &'c mut Names,
        connections: &'c mut Connections,
        calls: &'c mut Calls,
        initiators: &'c mut Initiators,
        meta: &'c Meta,
    ) -> Context<'c> {
        Context {
            out,
            options,
            names,
            connections,
            calls,
            initiators,
            meta,
            protocol: "",
            link_header_len: 0,
            depth: 0,
        }
    }

    /// The count of `-v`.
    #[inline]
    pub(crate) fn verbose(&self) -> u8 {
        self.options.verbose
    }

    /// Prints a header within a header, unless they nest too deep.
    pub(crate) fn nested(&mut self, print: impl FnOnce(&mut Context<'c>) -> Printed) -> Printed {
        if self.depth == DEPTH_MAX {
            self.text(" [nested too deep]");
            return Ok(());
        }
        self.depth += 1;
        let printed = print(self);
        self.depth -= 1;
        printed
    }

    /// Prints a packet within the payload of another, with fewer details.
    pub(crate) fn nested_less_verbose(
        &mut self,
        fewer: u8,
        print: impl for<'i> FnOnce(&mut Context<'i>) -> Printed,
    ) -> Printed {
        let options = Options { verbose: self.options.verbose.saturating_sub(fewer), ..self.options.clone() };
        let mut inner = Context {
            out: self.out,
            options: &options,
            names: self.names,
            connections: self.connections,
            calls: self.calls,
            initiators: self.initiators,
            meta: self.meta,
            protocol: self.protocol,
            link_header_len: 0,
            depth: self.depth,
        };
        let printed = inner.nested(print);
        self.protocol = inner.protocol;
        printed
    }

    /// `count` bytes as characters, up to the first NUL if they are `padded`; their end is where the captured bytes
    /// end.
    pub(crate) fn characters(&mut self, span: Span<'_>, count: usize, padded: bool) -> Printed {
        let shown = &span.data[..count.min(span.captured())];
        if padded && self.visible_until_nul(shown) {
            return Ok(());
        }
        if !padded {
            self.visible_all(shown);
        }
        span.need(count)
    }

    /// Whether no IP header encloses the one being printed.
    pub(crate) fn is_outermost(&self) -> bool {
        self.depth <= 1
    }

    /// The mark of a protocol whose bytes end too early, ` [|protocol]`.
    pub(crate) fn cut(&mut self) {
        self.text(" [|");
        self.text(self.protocol);
        self.text("]");
    }

    /// The mark of bytes that make no sense, ` (invalid)`.
    pub(crate) fn invalid(&mut self) {
        self.text(" (invalid)");
    }

    /// The captured bytes in hexadecimal and characters, as for a protocol that is not known.
    pub(crate) fn hex_and_ascii(&mut self, span: Span<'_>) {
        let shown = &span.data[..span.length.min(span.data.len())];
        hexdump::hex_and_ascii(self.out, b"\n\t", shown, 0);
    }

    /// [`hex_and_ascii`](Self::hex_and_ascii), unless the whole packet is shown in that way anyway, or `-q` is given.
    pub(crate) fn unknown(&mut self, span: Span<'_>) {
        if !self.options.hex.shows_hex() && !self.options.quiet {
            self.hex_and_ascii(span);
        }
    }

    /// As [`hex_and_ascii`](Self::hex_and_ascii), where bytes that were not captured end the packet's text.
    pub(crate) fn hex_and_ascii_to_end(&mut self, span: Span<'_>) -> Printed {
        self.hex_and_ascii(span);
        span.need(span.length)
    }

    /// The captured bytes in hexadecimal, each line after `indent` (which starts with a line feed).
    pub(crate) fn hex_lines(&mut self, indent: &str, span: Span<'_>) {
        let shown = &span.data[..span.length.min(span.data.len())];
        hexdump::hex(self.out, indent.as_bytes(), shown, 0);
    }

    /// An address of a host: its name if names are wanted and it has one.
    #[inline]
    pub(crate) fn host(&mut self, address: IpAddr) {
        if self.options.host_names
            && let Some(name) = self.names.host(address)
        {
            self.out.extend_from_slice(name.as_bytes());
            return;
        }
        match address {
            IpAddr::V4(address) => self.ipv4(address.octets()),
            IpAddr::V6(address) => self.ipv6(address.octets()),
        }
    }

    /// An IPv4 address of a packet behind a text; neither if it was cut.
    pub(crate) fn ipv4_after(&mut self, text: &str, span: Span<'_>, at: usize) -> Printed {
        let address = span.array::<4>(at)?;
        self.text(text);
        self.host(IpAddr::from(address));
        Ok(())
    }

    /// A hardware address, with the organization's name if names are wanted and it has 6 bytes.
    pub(crate) fn mac(&mut self, address: &[u8]) {
        if address == [0xff; 6] && self.options.port_names {
            self.text("Broadcast");
            return;
        }
        self.colon_hex(address);
        if let ([a, b, c, _, _, _], true) = (address, self.options.port_names) {
            self.text(" (oui ");
            self.text(organization(u32::from_be_bytes([0, *a, *b, *c])).unwrap_or("Unknown"));
            self.text(")");
        }
    }

    /// A port: the name of its service if names are wanted and it has one.
    #[inline]
    pub(crate) fn port(&mut self, kind: PortKind, port: u16) {
        if self.options.port_names
            && let Some(name) = self.names.port(kind, port)
        {
            self.out.extend_from_slice(name.as_bytes());
            return;
        }
        self.dec(port);
    }
}

impl Text for Context<'_> {
    #[inline]
    fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

impl fmt::Write for Context<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// Formats into a [`Context`]. For rare text; hot paths use [`Text`].
macro_rules! put {
    ($context:expr, $($format:tt)*) => {{
        use std::fmt::Write as _;
        // Writing to memory does not fail.
        let _ = write!($context, $($format)*);
    }};
}
pub(crate) use put;

/// The name of `value` in a table, if it has one.
pub(crate) fn lookup<T: Copy + PartialEq>(table: &[(T, &'static str)], value: T) -> Option<&'static str> {
    table.iter().find(|(number, _)| *number == value).map(|(_, name)| *name)
}

/// Writes the names of all bits of `value` that `table` knows, between `separator`s; `none` if there are none.
pub(crate) fn put_bits(cx: &mut Context<'_>, table: &[(u32, &str)], none: &str, separator: &str, value: u32) {
    let mut first = true;
    for (bits, name) in table {
        if value & bits == *bits && *bits != 0 {
            if !first {
                cx.text(separator);
            }
            cx.text(name);
            first = false;
        }
    }
    if first {
        cx.text(none);
    }
}
