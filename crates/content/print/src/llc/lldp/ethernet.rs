//! Fields that IEEE 802.3 defines for LLDP (802.3, 79.3).

use super::bridge::print_aggregation;
use super::{Named, lookup_16};
use crate::bytes::{Cut, Span};
use crate::context::{Context, lookup, put, put_bits};
use crate::text::Text;

const SUBTYPES: &[(u8, &str)] = &[
    (1, "MAC/PHY configuration/status"),
    (2, "Power via MDI"),
    (3, "Link aggregation"),
    (4, "Max frame size"),
];

const NEGOTIATION: Named = &[(1, "supported"), (2, "enabled")];

/// Abilities that are offered (RFC 3636, `ifMauAutoNegCapAdvertisedBits`).
const ABILITIES: Named = &[
    (0x4000, "10BASE-T hdx"),
    (0x2000, "10BASE-T fdx"),
    (0x1000, "100BASE-T4"),
    (0x0800, "100BASE-TX hdx"),
    (0x0400, "100BASE-TX fdx"),
    (0x0200, "100BASE-T2 hdx"),
    (0x0100, "100BASE-T2 fdx"),
    (0x0080, "Pause for fdx links"),
    (0x0040, "Asym PAUSE for fdx"),
    (0x0020, "Sym PAUSE for fdx"),
    (0x0010, "Asym and Sym PAUSE for fdx"),
    (0x0008, "1000BASE-{X LX SX CX} hdx"),
    (0x0004, "1000BASE-{X LX SX CX} fdx"),
    (0x0002, "1000BASE-T hdx"),
    (0x0001, "1000BASE-T fdx"),
];

/// Media attachment units (RFC 3636, `dot3MauType`).
#[rustfmt::skip]
const UNITS: [&str; 41] = [
    "Unknown", "AUI", "10BASE_5", "FOIRL", "10BASE2", "10BASET duplex mode unknown", "10BASEFP", "10BASEFB",
    "10BASEFL duplex mode unknown", "10BROAD36", "10BASET hdx", "10BASET fdx", "10BASEFL hdx", "10BASEFL fdx",
    "100BASET4", "100BASETX hdx", "100BASETX fdx", "100BASEFX hdx", "100BASEFX fdx", "100BASET2 hdx",
    "100BASET2 fdx", "1000BASEX hdx", "1000BASEX fdx", "1000BASELX hdx", "1000BASELX fdx", "1000BASESX hdx",
    "1000BASESX fdx", "1000BASECX hdx", "1000BASECX fdx", "1000BASET hdx", "1000BASET fdx", "10GBASEX",
    "10GBASELX4", "10GBASER", "10GBASEER", "10GBASELR", "10GBASESR", "10GBASEW", "10GBASEEW", "10GBASELW",
    "10GBASESW",
];

const POWER: Named = &[(1, "PSE"), (2, "supported"), (4, "enabled"), (8, "can be controlled")];
const POWER_PAIRS: &[(u8, &str)] = &[(1, "signal"), (2, "spare")];
const POWER_CLASSES: &[(u8, &str)] =
    &[(1, "class0"), (2, "class1"), (3, "class2"), (4, "class3"), (5, "class4")];

/// Prints a field. `false` if its subtype is not known, so that its bytes are shown.
pub(super) fn print(cx: &mut Context<'_>, subtype: u8, value: Span<'_>) -> Result<bool, Cut> {
    put!(cx, "\n\t  {} Subtype ({subtype})", lookup(SUBTYPES, subtype).unwrap_or("unknown"));
    match subtype {
        1 if value.length >= 5 => {
            let (negotiation, abilities, unit) = (value.u8(0)?, value.u16(1)?, value.u16(3)?);
            cx.text("\n\t    autonegotiation [");
            put_bits(cx, NEGOTIATION, "none", ", ", u32::from(negotiation));
            put!(cx, "] (0x{negotiation:02x})\n\t    PMD autoneg capability [");
            put_bits(cx, ABILITIES, "unknown", ", ", u32::from(abilities));
            put!(cx, "] (0x{abilities:04x})\n\t    MAU type {} (0x{unit:04x})", lookup_16(&UNITS, unit));
        }
        2 if value.length >= 3 => {
            let [support, pair, class] = value.array(0)?;
            cx.text("\n\t    MDI power support [");
            put_bits(cx, POWER, "none", ", ", u32::from(support));
            put!(cx, "], power pair {}", lookup(POWER_PAIRS, pair).unwrap_or("unknown"));
            put!(cx, ", power class {}", lookup(POWER_CLASSES, class).unwrap_or("unknown"));
        }
        3 if value.length >= 5 => print_aggregation(cx, value)?,
        4 if value.length >= 2 => put!(cx, "\n\t    MTU size {}", value.u16(0)?),
        // Values that are too short show nothing.
        1..=4 => {}
        _ => return Ok(false),
    }
    Ok(true)
}
