//! The log of the OpenBSD packet filter.
//!
//! ```text
//! length (1) | family (1) | action (1) | reason (1) | interface (16) | rule set (16)
//! | rule (4) | subrule (4) | uid pid uid pid (16) | direction (1): 1 in, 2 out | ...
//! ```
//!
//! Source: `net/if_pflog.h` of OpenBSD and FreeBSD.

use tapline_packet::LinkType;

use super::layers::{bytes, equal};
use super::{Result, Scope};
use crate::ast::PfField;
use crate::predicate::Predicate;
use tapline_bpf::cfg::Width;
use tapline_syntax::Error;

/// Names end in a zero byte within 16.
const NAME_MAX: usize = 15;

pub(super) const DIRECTION: u32 = 60;

impl Scope<'_> {
    pub(super) fn pf(&mut self, field: &PfField) -> Result<Predicate> {
        let word = word(field);
        if self.link_type() != LinkType::PFLOG {
            return Err(Error::whole(format!("'{word}' supported only on PFLOG linktype")));
        }
        Ok(match field {
            PfField::Ifname(name) => {
                check_name(name, "ifname interface names can only be")?;
                bytes(self.at_link(4), name.as_bytes(), "pf interface")
            }
            PfField::Ruleset(name) => {
                check_name(name, "ruleset names can only be")?;
                bytes(self.at_link(20), name.as_bytes(), "pf rule set")
            }
            PfField::Rulenum(number) => equal(self.at_link(36), Width::Word, *number, "pf rule"),
            PfField::Subrulenum(number) => equal(self.at_link(40), Width::Word, *number, "pf subrule"),
            PfField::Reason(code) => equal(self.at_link(3), Width::Byte, *code, "pf reason"),
            PfField::Action(code) => equal(self.at_link(2), Width::Byte, *code, "pf action"),
        })
    }
}

fn check_name(name: &str, limit: &str) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::whole(format!("{limit} {NAME_MAX} characters")));
    }
    Ok(())
}

fn word(field: &PfField) -> &'static str {
    match field {
        PfField::Ifname(_) => "ifname",
        PfField::Ruleset(_) => "ruleset",
        PfField::Rulenum(_) => "rnr",
        PfField::Subrulenum(_) => "srnr",
        PfField::Reason(_) => "reason",
        PfField::Action(_) => "action",
    }
}
