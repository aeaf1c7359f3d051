//! Link layers: the first header of a packet.

use tapline_packet::LinkType;

use crate::bytes::{Printed, Span};
use crate::context::Context;
use crate::text::Text;

pub(crate) mod ethernet;
pub(crate) mod ethertype;
mod loopback;
pub(crate) mod mpls;
mod nflog;
pub(crate) mod ppp;
pub(crate) mod pppoe;
mod raw;
mod sll;
mod wlan;

/// Prints a packet from its first header on. A type without a printer is shown as its bytes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, link_type: LinkType) -> Printed {
    match link_type {
        LinkType::ETHERNET => {
            cx.link_header_len = ethernet::frame(cx, span, "")?;
            Ok(())
        }
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => raw::print(cx, span),
        LinkType::NULL | LinkType::LOOP => loopback::print(cx, span),
        LinkType::LINUX_SLL => sll::version_1(cx, span),
        LinkType::LINUX_SLL2 => sll::version_2(cx, span),
        LinkType::PPP => ppp::link(cx, span),
        LinkType::PPP_HDLC => ppp::framed_link(cx, span),
        LinkType::PPP_ETHER => pppoe::print(cx, span),
        LinkType::NFLOG => nflog::print(cx, span),
        LinkType::IEEE802_11 => {
            cx.link_header_len = wlan::frame(cx, span, wlan::Trim::default())?;
            Ok(())
        }
        LinkType::IEEE802_11_RADIOTAP => {
            cx.link_header_len = wlan::radiotap::print(cx, span)?;
            Ok(())
        }
        _ => {
            cx.protocol = "unsupported";
            cx.text("UNSUPPORTED");
            cx.hex_and_ascii(span.with_length(span.captured()));
            Ok(())
        }
    }
}
