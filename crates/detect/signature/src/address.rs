//! Addresses and ports of a header, as parts of a packet filter.
//!
//! ```text
//! address := any | $NAME | ! address | [ address, ... ] | ADDRESS [ / LENGTH ]
//! port    := any | $NAME | ! port    | [ port, ... ]    | N | N:M | :M | N:
//! ```
//!
//! In a list, elements behind `!` are taken away from the others; a list of `!` alone takes them away from all.

use std::net::IpAddr;

use crate::options::shortened;
use crate::ruleset::Variables;

/// Lists and variables inside one another.
const DEPTH_MAX: usize = 8;
/// Lists, their elements and variables of a header, each as often as it is met.
const ELEMENTS_MAX: usize = 4096;

/// The side of a packet that an expression is about, in the words of packet filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    pub(crate) fn word(self) -> &'static str {
        if self == Side::Source { "src" } else { "dst" }
    }
}

/// Addresses or ports: the kind of a list's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Address,
    Port,
}

/// Translates an expression to a packet filter. `None` is any address or port.
pub(crate) fn translate(
    kind: Kind,
    side: Side,
    text: &str,
    variables: &Variables,
) -> Result<Option<String>, String> {
    let mut translation = Translation { kind, side, variables, elements: 0 };
    translation.expression(text, 0)
}

struct Translation<'v> {
    kind: Kind,
    side: Side,
    variables: &'v Variables,
    elements: usize,
}

impl Translation<'_> {
    fn expression(&mut self, text: &str, depth: usize) -> Result<Option<String>, String> {
        let text = text.trim();
        // Counted before all else: lists of variables of lists would take for ever.
        self.elements += 1;
        if self.elements > ELEMENTS_MAX {
            return Err(format!("more than {ELEMENTS_MAX} elements in a header: split the signature"));
        }
        if depth > DEPTH_MAX {
            let text = shortened(text);
            return Err(format!("`{text}` is {DEPTH_MAX} lists or variables deep: write it out"));
        }
        if let Some(rest) = text.strip_prefix('!') {
            let Some(inner) = self.expression(rest, depth + 1)? else {
                return Err(format!("`{text}` fits nothing: `any` cannot be negated"));
            };
            return Ok(Some(format!("not {inner}")));
        }
        if let Some(name) = text.strip_prefix('$') {
            let value = match self.kind {
                Kind::Address => self.variables.address(name),
                Kind::Port => self.variables.port(name),
            };
            let value = value
                .ok_or_else(|| format!("the variable ${name} has no value: give variables=\"{name}=...\""))?
                .to_owned();
            return self.expression(&value, depth + 1);
        }
        if let Some(list) = text.strip_prefix('[') {
            let list = list.strip_suffix(']').ok_or_else(|| format!("`{text}` lacks its ]"))?;
            return self.list(list, depth);
        }
        if text.eq_ignore_ascii_case("any") {
            return Ok(None);
        }
        match self.kind {
            Kind::Address => network(self.side, text).map(Some),
            Kind::Port => port_range(self.side, text).map(Some),
        }
    }

    fn list(&mut self, list: &str, depth: usize) -> Result<Option<String>, String> {
        let (mut wanted, mut taken_away, mut is_any) = (Vec::new(), Vec::new(), false);
        for element in elements(list)? {
            let Some(filter) = self.expression(element, depth + 1)? else {
                is_any = true;
                continue;
            };
            match element.trim_start().starts_with('!') {
                true => taken_away.push(filter),
                false => wanted.push(filter),
            }
        }
        let mut parts = Vec::new();
        if !is_any && !wanted.is_empty() {
            parts.push(format!("({})", wanted.join(" or ")));
        }
        parts.extend(taken_away);
        Ok((!parts.is_empty()).then(|| format!("({})", parts.join(" and "))))
    }
}

/// The elements of a list, between commas outside of inner lists.
fn elements(list: &str) -> Result<Vec<&str>, String> {
    let (mut all, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or_else(|| format!("`{list}` has a ] too many"))?,
            ',' if depth == 0 => {
                all.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    all.push(&list[start..]);
    if depth > 0 {
        return Err(format!("`{list}` lacks a ]"));
    }
    if all.iter().any(|element| element.trim().is_empty()) {
        return Err(format!("`[{list}]` has an empty element"));
    }
    Ok(all)
}

/// An address, or a network; bits of the host are cleared.
fn network(side: Side, text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is neither an address nor a network such as 192.0.2.0/24");
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        Some(length) => prefix_length(length, width).ok_or_else(wrong)?,
        None => width,
    };
    let (family, masked) = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            ("ip", IpAddr::V4((u32::from(address) & mask).into()))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            ("ip6", IpAddr::V6((u128::from(address) & mask).into()))
        }
    };
    // Every address of one version: a prefix without bits is none to filters.
    match length {
        0 => Ok(family.to_owned()),
        _ => Ok(format!("{family} {} net {masked}/{length}", side.word())),
    }
}

/// The length of a prefix: a number, or the mask of IPv4 in four numbers.
fn prefix_length(text: &str, width: u32) -> Option<u32> {
    if let Ok(mask) = text.parse::<std::net::Ipv4Addr>() {
        let mask = u32::from(mask);
        return (width == 32 && mask.leading_ones() == mask.count_ones()).then(|| mask.leading_ones());
    }
    text.parse().ok().filter(|length| *length <= width)
}

/// A port, or a range with one or both ends.
fn port_range(side: Side, text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is neither a port nor a range such as 1024:");
    let port = |text: &str, otherwise: u16| match text.trim() {
        "" => Ok(otherwise),
        text => text.parse::<u16>().map_err(|_| wrong()),
    };
    let (least, greatest) = match text.split_once(':') {
        Some((least, greatest)) if least.trim().is_empty() && greatest.trim().is_empty() => {
            return Err(wrong());
        }
        Some((least, greatest)) => (port(least, 0)?, port(greatest, u16::MAX)?),
        None => (text.parse().map_err(|_| wrong())?, text.parse().map_err(|_| wrong())?),
    };
    if least > greatest {
        return Err(format!("`{text}` ends before it begins"));
    }
    match least == greatest {
        true => Ok(format!("{} port {least}", side.word())),
        false => Ok(format!("{} portrange {least}-{greatest}", side.word())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<Option<String>, String> {
        let variables = Variables::parse("HOME=[10.0.0.0/8,192.168.1.7];LOOP=$LOOP").expect("two variables");
        translate(Kind::Address, Side::Source, text, &variables)
    }

    fn port(text: &str) -> Result<Option<String>, String> {
        translate(Kind::Port, Side::Destination, text, &Variables::parse("WEB=[80,8000:8100]").unwrap())
    }

    #[test]
    fn addresses_become_filters() {
        let of = |text| address(text).unwrap().unwrap_or_default();
        assert_eq!(of("any"), "");
        assert_eq!(of("192.168.1.77/24"), "ip src net 192.168.1.0/24");
        assert_eq!(of("10.1.2.3/255.255.0.0"), "ip src net 10.1.0.0/16");
        assert_eq!(of("0.0.0.0/0"), "ip");
        assert_eq!(of("!2001:db8::1"), "not ip6 src net 2001:db8::1/128");
        assert_eq!(of("$HOME"), "((ip src net 10.0.0.0/8 or ip src net 192.168.1.7/32))");
        assert_eq!(
            of("[$HOME, !10.1.1.1]"),
            "((((ip src net 10.0.0.0/8 or ip src net 192.168.1.7/32))) and not ip src net 10.1.1.1/32)"
        );
        assert_eq!(of("[any,!10.1.1.1]"), "(not ip src net 10.1.1.1/32)");
    }

    #[test]
    fn ports_become_filters() {
        let of = |text| port(text).unwrap().unwrap_or_default();
        assert_eq!(of("80"), "dst port 80");
        assert_eq!(of(":1023"), "dst portrange 0-1023");
        assert_eq!(of("![1024:,22]"), "not ((dst portrange 1024-65535 or dst port 22))");
        assert_eq!(of("$WEB"), "((dst port 80 or dst portrange 8000-8100))");
    }

    /// Variables that are lists of variables make a short text with endless elements.
    #[test]
    fn lists_of_lists_of_any_have_a_bound() {
        let list = |element: &str| format!("[{}]", vec![element; 5000].join(","));
        let text = format!("A={};B={};C={}", list("any"), list("$A"), list("$B"));
        let variables = Variables::parse(&text).expect("three variables");
        let error = translate(Kind::Address, Side::Source, "$C", &variables).expect_err("too many");
        assert!(error.contains("elements"), "{error}");
    }

    #[test]
    fn errors_name_the_part_that_is_wrong() {
        for (text, wanted) in [
            ("$NONE", "$NONE has no value"),
            ("$LOOP", "deep"),
            ("!any", "fits nothing"),
            ("[10.0.0.1", "lacks its ]"),
            ("[10.0.0.1,,10.0.0.2]", "empty element"),
            ("10.0.0.1/33", "10.0.0.1/33"),
            ("10.0.0.256", "10.0.0.256"),
            ("10.0.0.0/255.0.255.0", "255.0.255.0"),
        ] {
            let error = address(text).expect_err(text);
            assert!(error.contains(wanted), "{text}: {error}");
        }
        for text in ["65536", ":", "90:80", "http", ""] {
            assert!(port(text).is_err(), "{text}");
        }
    }
}
