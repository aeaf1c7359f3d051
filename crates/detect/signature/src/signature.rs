//! A signature: header, options, and the texts that its reports carry.

use crate::condition::{self, Condition, FlowBits};
use crate::content::{Content, ContentRange};
use crate::conversation::{FlowBit, FlowBitChange, FlowBitNames};
use crate::header::{Header, words};
use crate::number::number;
use crate::options::{RawOption, parts, shortened, split, unquoted};
use crate::payload::{ByteJump, ByteTest, Outcome, PayloadOption, Pcre, evaluate};
use crate::ruleset::Variables;
use crate::threshold::Threshold;

/// Options on the payload of a signature: they are evaluated by recursion.
const PAYLOAD_OPTIONS_MAX: usize = 64;
/// The priority without `priority` and without a classification that has one.
const PRIORITY_DEFAULT: u32 = 3;

/// The consequence of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// The packet is reported by no signature.
    Pass,
    /// The packet is reported, and does not go on where packets are forwarded.
    Drop,
    /// The packet is reported.
    Alert,
    /// The packet goes on, and is not reported.
    Log,
}

/// A source that describes the subject of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The system, such as `cve` or `url`.
    pub system: String,
    /// The name of the source in the system.
    pub id: String,
}

/// A signature, parsed and checked.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The consequence of a match.
    pub action: Action,
    /// Protocol, addresses and ports.
    pub header: Header,
    /// The generator's number; 1 for signatures of people.
    pub gid: u32,
    /// The signature's number, unique in its generator.
    pub sid: u32,
    /// The revision.
    pub rev: u32,
    /// The text of its reports.
    pub msg: String,
    /// The class of the attack; empty without.
    pub classtype: String,
    /// The urgency; 1 is the most urgent.
    pub priority: u32,
    /// Sources that describe the attack.
    pub references: Vec<Reference>,
    /// Limits of its reports.
    pub threshold: Option<Threshold>,
    /// Limits of its reports that begin with a rate, applied before the threshold.
    pub detection_filter: Option<Threshold>,
    /// A match changes flow bits and is not reported.
    pub is_silent: bool,
    /// The line of the file in which the signature begins, counted from 1.
    pub line: u32,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) payload: Vec<PayloadOption>,
    pub(crate) changes: Vec<(FlowBit, FlowBitChange)>,
}

/// Options without an effect on the verdict, and without a place in reports.
const IGNORED: [&str; 4] = ["metadata", "rawbytes", "target", "service"];

/// The properties of the whole file that its signatures need.
pub(crate) struct Context<'c> {
    pub(crate) variables: &'c Variables,
    pub(crate) flow_bits: &'c mut FlowBitNames,
    /// Bytes that regular expressions may still take.
    pub(crate) regex_room: &'c mut usize,
    /// Priorities by class, of lines `config classification`.
    pub(crate) classes: &'c [(String, u32)],
}

impl Signature {
    /// Parses the text of a signature, which is in one line.
    pub(crate) fn parse(text: &str, line: u32, context: &mut Context<'_>) -> Result<Signature, String> {
        let (head, rest) = text.split_once('(').ok_or("the options in parentheses are missing")?;
        let options = rest.trim_end().strip_suffix(')').ok_or("the parenthesis is not closed")?;
        let all = words(head);
        let (action, rest) = all.split_first().ok_or("the action is missing")?;
        let mut signature = Signature {
            action: self::action(action)?,
            header: Header::parse(rest, context.variables)?,
            gid: 1,
            sid: 0,
            rev: 0,
            msg: String::new(),
            classtype: String::new(),
            priority: 0,
            references: Vec::new(),
            threshold: None,
            detection_filter: None,
            is_silent: false,
            line,
            conditions: Vec::new(),
            payload: Vec::new(),
            changes: Vec::new(),
        };
        for option in split(options)? {
            signature.take(&option, context)?;
        }
        signature.complete(context)?;
        Ok(signature)
    }

    fn take(&mut self, option: &RawOption<'_>, context: &mut Context<'_>) -> Result<(), String> {
        let RawOption { name, value } = option;
        if let Some(conditions) = condition::parse(name, value)? {
            self.conditions.extend(conditions);
            return Ok(());
        }
        match name.as_str() {
            "msg" => self.msg = unquoted(value)?,
            "sid" => self.sid = number(value, u32::MAX.into())? as u32,
            "gid" => self.gid = number(value, u32::MAX.into())? as u32,
            "rev" => self.rev = number(value, u32::MAX.into())? as u32,
            "classtype" => self.classtype = (*value).to_owned(),
            "priority" => self.priority = number(value, 255)? as u32,
            "reference" => {
                let (system, id) = value.split_once(',').ok_or("a reference is written as system,id")?;
                self.references
                    .push(Reference { system: system.trim().to_owned(), id: id.trim().to_owned() });
            }
            "threshold" => self.threshold = Some(Threshold::parse(value, false)?),
            "detection_filter" => self.detection_filter = Some(Threshold::parse(value, true)?),
            "flowbits" => match condition::flow_bits(value, context.flow_bits)? {
                FlowBits::Ask(condition) => self.conditions.push(condition),
                FlowBits::Change(bit, change) => self.changes.push((bit, change)),
                FlowBits::NoAlert => self.is_silent = true,
            },
            "content" => self.payload.push(PayloadOption::Content(Box::new(Content::parse(value)?))),
            "pcre" => self.payload.push(PayloadOption::Pcre(Pcre::parse(value, context.regex_room)?)),
            "byte_test" => self.payload.push(PayloadOption::ByteTest(ByteTest::parse(value)?)),
            "byte_jump" => self.payload.push(PayloadOption::ByteJump(ByteJump::parse(value)?)),
            "isdataat" => {
                let (count, is_relative, is_negated) = condition::is_data_at(value)?;
                self.payload.push(PayloadOption::IsDataAt { count, is_relative, is_negated });
            }
            name if self.set_content(name, value)? || IGNORED.contains(&name) => {}
            name => return Err(format!("the option `{}` is not supported", shortened(name))),
        }
        Ok(())
    }

    /// Applies an option to the last content; whether there is such an option.
    fn set_content(&mut self, name: &str, value: &str) -> Result<bool, String> {
        const SETTINGS: [&str; 8] =
            ["nocase", "offset", "depth", "distance", "within", "startswith", "endswith", "fast_pattern"];
        if !SETTINGS.contains(&name) {
            return Ok(false);
        }
        let contents = self.payload.iter_mut().rev();
        let last = contents.filter_map(|option| match option {
            PayloadOption::Content(content) => Some(content),
            _ => None,
        });
        let content = last.into_iter().next().ok_or_else(|| format!("`{name}` comes before any content"))?;
        content.set(name, value)
    }

    fn complete(&mut self, context: &Context<'_>) -> Result<(), String> {
        if self.sid == 0 {
            return Err("sid is missing".to_owned());
        }
        if self.payload.len() > PAYLOAD_OPTIONS_MAX {
            return Err(format!("more than {PAYLOAD_OPTIONS_MAX} options on the payload"));
        }
        let class = context.classes.iter().find(|(name, _)| *name == self.classtype);
        if self.priority == 0 {
            self.priority = class.map_or(PRIORITY_DEFAULT, |(_, priority)| *priority);
        }
        Ok(())
    }

    /// The content that the search for all signatures looks for: the one marked so, else the longest; of those that
    /// must be there.
    pub(crate) fn fast_content(&self) -> Option<&Content> {
        let contents = self.payload.iter().filter_map(|option| match option {
            PayloadOption::Content(content) if !content.is_negated => Some(&**content),
            _ => None,
        });
        contents.max_by_key(|content| (content.is_fast, content.bytes.len()))
    }

    /// The signature asks for the state of the flow, or changes it.
    pub fn needs_flow(&self) -> bool {
        !self.changes.is_empty() || self.conditions.iter().any(Condition::needs_flow)
    }

    /// An option looks at a place that counts from the start of the payload.
    pub(crate) fn has_absolute_place(&self) -> bool {
        self.payload.iter().any(|option| match option {
            PayloadOption::Content(content) => {
                !matches!(content.place, ContentRange::Relative { .. } | ContentRange::ANYWHERE)
            }
            PayloadOption::Pcre(_) => false,
            PayloadOption::IsDataAt { is_relative, .. } => !is_relative,
            PayloadOption::ByteTest(test) => !test.is_relative(),
            PayloadOption::ByteJump(jump) => !jump.is_relative(),
        })
    }

    pub(crate) fn evaluate(&self, facts: &condition::Facts<'_>, payload: &[u8]) -> Outcome {
        match self.conditions.iter().all(|condition| condition.holds(facts)) {
            true => evaluate(&self.payload, payload),
            false => Outcome::Differs,
        }
    }
}

fn action(word: &str) -> Result<Action, String> {
    match word {
        "alert" => Ok(Action::Alert),
        "log" => Ok(Action::Log),
        "pass" => Ok(Action::Pass),
        "drop" => Ok(Action::Drop),
        "reject" | "sdrop" | "block" => Err(format!(
            "`{word}` is not supported: drop keeps a packet from being forwarded, and reports it"
        )),
        other => Err(format!("unknown action `{}`; expected alert, drop, log or pass", shortened(other))),
    }
}

/// The words behind `config classification:`: name, description, priority.
pub(crate) fn classification(text: &str) -> Result<(String, u32), String> {
    match parts(text).as_slice() {
        [name, _, priority] => Ok(((*name).to_owned(), number(priority, 255)? as u32)),
        _ => Err("a classification has a name, a description and a priority".to_owned()),
    }
}
