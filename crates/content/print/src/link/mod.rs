//! Link layers: the first header of a packet.

use tapline_packet::LinkType;

use crate::bytes::{Cut, Printed, Span};
use crate::context::Context;
use crate::text::Text;

mod arcnet;
mod atm;
mod broadcom;
mod cisco_hdlc;
mod dsa;
pub(crate) mod ethernet;
pub(crate) mod ethertype;
pub(crate) mod fddi;
pub(crate) mod frame_relay;
mod ipnet;
mod ipoib;
mod juniper;
pub(crate) mod loopback;
mod mfr;
pub(crate) mod mpls;
mod nflog;
mod ppi;
pub(crate) mod ppp;
pub(crate) mod pppoe;
mod prism;
pub(crate) mod q933;
mod raw;
pub(crate) mod slip;
mod sll;
mod vsock;
mod wlan;
mod wpan;

/// Prints a packet from its first header on. A type without a printer is shown as its bytes.
pub(crate) fn print(cx: &mut Context<'_>, span: Span<'_>, link_type: LinkType) -> Printed {
    let known = by_type(cx, span, link_type)?;
    if !known {
        cx.protocol = "unsupported";
        cx.text("UNSUPPORTED");
        cx.hex_and_ascii(span.with_length(span.captured()));
    }
    Ok(())
}

/// Prints a packet if its type has a printer. `false`, and nothing printed, if it has none.
fn by_type(cx: &mut Context<'_>, span: Span<'_>, link_type: LinkType) -> Result<bool, Cut> {
    match link_type {
        LinkType::ETHERNET => {
            cx.link_header_len += ethernet::frame(cx, span, "")?;
        }
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => raw::print(cx, span)?,
        LinkType::NULL | LinkType::LOOP => loopback::print(cx, span)?,
        LinkType::LINUX_SLL => sll::version_1(cx, span)?,
        LinkType::LINUX_SLL2 => sll::version_2(cx, span)?,
        LinkType::PPP => ppp::link(cx, span)?,
        LinkType::PPP_HDLC => ppp::framed_link(cx, span)?,
        LinkType::PPP_ETHER => pppoe::print(cx, span)?,
        LinkType::NFLOG => nflog::print(cx, span)?,
        LinkType::IEEE802_11 => {
            cx.link_header_len += wlan::frame(cx, span, wlan::Trim::default())?;
        }
        LinkType::IEEE802_11_RADIOTAP => {
            cx.link_header_len += wlan::radiotap::print(cx, span)?;
        }
        LinkType::PPP_PPPD => ppp::link(cx, span)?,
        LinkType::DSA_TAG_DSA => dsa::print(cx, span)?,
        LinkType::DSA_TAG_EDSA => dsa::print_with_ethertype(cx, span)?,
        LinkType::DSA_TAG_BRCM => broadcom::print(cx, span)?,
        LinkType::DSA_TAG_BRCM_PREPEND => broadcom::print_prepended(cx, span)?,
        LinkType::C_HDLC | LinkType::HDLC => {
            cx.link_header_len += cisco_hdlc::print(cx, span)?;
        }
        LinkType::FRELAY => frame_relay::link(cx, span)?,
        LinkType::MFR => mfr::print(cx, span)?,
        LinkType::PPI => ppi::print(cx, span)?,
        LinkType::IEEE802_11_PRISM => prism::print(cx, span)?,
        LinkType::IEEE802_11_AVS => {
            cx.link_header_len += prism::print_avs(cx, span)?;
        }
        LinkType::FDDI => {
            cx.link_header_len += fddi::frame(cx, span)?;
        }
        LinkType::IEEE802_15_4_WITHFCS | LinkType::IEEE802_15_4_NOFCS => wpan::print(cx, span)?,
        LinkType::IEEE802_15_4_TAP => wpan::print_tap(cx, span)?,
        LinkType::SLIP => slip::print(cx, span)?,
        LinkType::SLIP_BSDOS => slip::print_bsdos(cx, span)?,
        LinkType::IPOIB => ipoib::print(cx, span)?,
        LinkType::IPNET => ipnet::print(cx, span)?,
        LinkType::ARCNET_BSD => arcnet::print(cx, span)?,
        LinkType::ARCNET_LINUX => arcnet::print_linux(cx, span)?,
        LinkType::VSOCK => vsock::print(cx, span)?,
        LinkType::ATM_RFC1483 => atm::print(cx, span)?,
        LinkType::SUNATM => atm::print_sun(cx, span)?,
        LinkType::ATM_CLIP | LinkType(19) => atm::print_classical_ip(cx, span)?,
        _ => return juniper::print(cx, span, link_type),
    }
    Ok(true)
}
