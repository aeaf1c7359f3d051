//! Names of shared captures, and the groups of readers that share one's packets.
//!
//! ```text
//! tap:office                  every packet that the reader wants
//! tap:office/ids              its share of them: flows are shared out among the readers of the group `ids`
//! tap:office/ids?by=host      likewise by pairs of addresses;  ?by=turn: packet by packet, in turn
//! tap:office/ids?by=vlan      flows, told apart by their VLAN tags too;  ?by=inner: flows inside the innermost tunnel
//! tap:office/ids?by=address   each packet to the readers of both of its addresses
//! tap:office/ids?by=first:10  each packet to the reader of the least number whose filter accepts it
//! ```

use serde::{Deserialize, Serialize};

/// The longest name of a group, in bytes.
pub const GROUP_NAME_MAX: usize = 64;
/// The most readers of a group.
pub const GROUP_MEMBERS_MAX: usize = 64;

tapline_packet::named_enum! {
    /// The rule by which packets are shared out among the readers of a group.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum ShareBy {
        /// Addresses, protocol and ports, both directions alike. Fragments go with their flow if their first fragment
        /// came before them.
        #[default]
        Flow = "flow",
        /// Addresses: all packets between two hosts stay together, fragments too.
        Host = "host",
        /// As [`Flow`](Self::Flow), with VLAN tags.
        Vlan = "vlan",
        /// As [`Flow`](Self::Flow), of the innermost packet in tunnels.
        Inner = "inner",
        /// Each address: a packet goes to the reader of its source and to the reader of its destination.
        Address = "address",
        /// Packets in turn.
        Turn = "turn",
        /// To the reader with the least priority number; among equals to the one that came first.
        First = "first",
    }
}

/// A group that a reader joins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupRequest {
    /// Name of the group: letters, digits, and - _ . between them, at most [`GROUP_NAME_MAX`].
    pub name: String,
    /// Rule for sharing packets; all readers of a group ask for the same.
    pub by: ShareBy,
    /// With [`ShareBy::First`]: the reader's priority; the least number comes first.
    pub priority: u32,
}

impl GroupRequest {
    /// Checks the name.
    ///
    /// # Errors
    /// The reason, for a person to read.
    pub fn check(&self) -> Result<(), String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > GROUP_NAME_MAX || !self.name.chars().all(is_part) {
            return Err(format!(
                "a group is named by letters, digits, and - _ . between them, at most {GROUP_NAME_MAX}: tap:office/ids"
            ));
        }
        Ok(())
    }
}

/// The capture and the group of a name without its `tap:`.
///
/// # Errors
/// The group is none, for a person to read.
pub fn parse_name(name: &str) -> Result<(&str, Option<GroupRequest>), String> {
    let Some((capture, group)) = name.split_once('/') else { return Ok((name, None)) };
    let (name, option) = group.split_once('?').unwrap_or((group, "by=flow"));
    let fault =
        || format!("`?{option}`: a group shares ?by=flow, host, vlan, inner, address, turn or first:NUMBER");
    let word = option.strip_prefix("by=").ok_or_else(fault)?;
    let (word, priority) = match word.split_once(':') {
        Some(("first", number)) => ("first", number.parse().map_err(|_| fault())?),
        Some(_) => return Err(fault()),
        None => (word, 0),
    };
    let by = ShareBy::of_name(word).ok_or_else(fault)?;
    let group = GroupRequest { name: name.to_owned(), by, priority };
    group.check()?;
    Ok((capture, Some(group)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_captures_and_groups() {
        let group = |name: &str, by| Some(GroupRequest { name: name.to_owned(), by, priority: 0 });
        assert_eq!(parse_name("office"), Ok(("office", None)));
        assert_eq!(parse_name("office/ids"), Ok(("office", group("ids", ShareBy::Flow))));
        for by in ShareBy::ALL {
            let word = by.name();
            assert_eq!(parse_name(&format!("office/a.b-1?by={word}")), Ok(("office", group("a.b-1", by))));
        }
        for wrong in
            ["office/", "office/a/b", "office/a b", "office/a?by=port", "office/a?x", "office/?by=flow"]
        {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
        assert!(parse_name(&format!("office/{}", "x".repeat(GROUP_NAME_MAX + 1))).is_err());
    }
}
