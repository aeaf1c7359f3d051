//! A filter made ready for a set.
//!
//! ```text
//! text --parse, lower--> Predicates --disjuncts.rs--> alternatives --> keys of a layout, and what to check of candidates
//!                            |
//!                            +--compile--> Program, only if some packet needs it
//! ```
//!
//! A filter that accepts most packets has alternatives that most packets meet in part, as `not port 22` does: to ask
//! them all takes longer than its program. Such a filter keeps their common part, and runs the program (`broad.rs`).
//!
//! An alternative becomes entries of a hash table: one for each combination of the possible numbers of its parts, as
//! long as these are few. Conditions that are not numbers (ranges, `not`) and those with too many numbers are checked
//! on the packets that the lookup finds.

use std::sync::Arc;

use tapline_packet::Packet;

use super::broad;
use super::condition::Condition;
use super::disjunct::{Conjunction, Literal, common, disjuncts, literal};
use super::field::BitField;
use super::layout::{Layout, WORDS_MAX};
use super::needs::Needs;
use tapline_bpf::PacketFilter;
use tapline_bpf::cfg::JumpTest as Compare;
use tapline_filter::Options;
use tapline_filter::predicate::{FieldTest, Predicate};
use tapline_ir::CompiledFilter;
use tapline_syntax::Error;

/// The most entries of one alternative.
const KEYS_MAX: usize = 1024;

/// Alternatives with a check, at most, that are tried on packets that meet them in part.
const ASKED_MAX: usize = 2;

/// Least number of neighbouring numbers for which a set is a bitmap.
const BITMAP_MIN: usize = 8;

/// Bits of the largest bitmap: all ports.
const BITMAP_BITS_MAX: u32 = 1 << 16;

/// Makes a compiled filter ready to run.
pub type FilterFactory<'a> = &'a dyn Fn(CompiledFilter) -> Arc<dyn PacketFilter>;

/// The compiled filter, run by the interpreter.
///
/// A set holds the program itself: behind [`CompiledFilter`] each call would read one more place in memory, which
/// cost a set of 100 programs 18 % of its time.
pub fn interpreted(filter: CompiledFilter) -> Arc<dyn PacketFilter> {
    Arc::new(filter.into_program())
}

/// A filter made ready for a [`FilterSet`](super::FilterSet). Cheap to share: put it in an [`Arc`].
pub struct Filter {
    pub(super) alternatives: Box<[Alternative]>,
    constants: Box<[Constant]>,
    /// The parts that are compared otherwise than by equality, anywhere in the filter.
    asked_otherwise: Arc<[BitField]>,
    /// The filter's own program, for packets and questions that the alternatives do not settle.
    pub(super) program: Option<Arc<dyn PacketFilter>>,
}

/// A number that a filter compares a part of the packet with, and that can be exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The name of the field: `source port`, `EtherType`.
    pub name: &'static str,
    /// The number.
    pub value: u32,
    /// The bits of the part that it is compared with; no others may be set in it.
    pub mask: u32,
    part: BitField,
}

/// The reason that constants cannot be exchanged in place. Compile the new text instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConstantError {
    /// There are fewer constants.
    #[error("there is no constant {0}; `constants` lists them")]
    NoSuchConstant(usize),
    /// The number has bits beyond those of the field.
    #[error("the new value of constant {0} has bits that its field does not have")]
    TooLarge(usize),
    /// Two numbers of one field were equal and would no longer be, or the reverse; or a range or a mask tests the
    /// field too.
    #[error("other tests of the field of constant {0} would change with it: compile the new text")]
    Entangled(usize),
    /// Some packets are decided by the filter's own program, which holds the old constants.
    #[error("the filter has a program of its own, which holds the old constants: compile the new text")]
    OwnProgram,
}

/// An alternative of a filter's condition: a packet that meets it is accepted.
pub(super) struct Alternative {
    conditions: Conjunction,
    pub(super) layout: Arc<Layout>,
    /// The keys one after the other, each of the layout's words.
    pub(super) keys: Box<[u64]>,
    /// The further condition on a packet with such a key.
    pub(super) check: Option<Check>,
    needs: Needs,
}

/// The conditions left for a packet that has the key.
#[derive(Clone)]
pub(super) struct Check {
    rest: Box<[(BitField, Numbers)]>,
    /// `None`: the key's bytes are all that is needed.
    needs: Option<Needs>,
}

/// The least and the greatest number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    low: u32,
    high: u32,
}

impl Bounds {
    #[inline(always)]
    pub(super) fn hold(self, value: u32) -> bool {
        self.low <= value && value <= self.high
    }
}

/// A set of numbers in the form that answers fastest.
#[derive(Clone, Debug)]
enum Numbers {
    Listed(Condition),
    Bitmap { low: u32, bits: Box<[u64]> },
}

impl Filter {
    /// Compiles a text. The interpreter runs the program, if one is needed.
    ///
    /// # Errors
    /// As of [`compile`](tapline_filter::compile).
    pub fn compile(text: &str, options: &Options) -> Result<Filter, Error> {
        Filter::compile_with(text, options, &interpreted)
    }

    /// Compiles a text. `backend` makes the program ready to run, if one is needed.
    ///
    /// # Errors
    /// As of [`compile`](tapline_filter::compile).
    pub fn compile_with(text: &str, options: &Options, backend: FilterFactory<'_>) -> Result<Filter, Error> {
        let predicates = tapline_filter::lower(&tapline_filter::parse(text)?, options)?;
        let made = |one: Conjunction| {
            let needs = Needs::of(&predicates.root, &one);
            Alternative::new(one, needs)
        };
        let mut alternatives: Box<[Alternative]> =
            disjuncts(&predicates.root, true).into_iter().map(made).collect();
        // A filter that keys alone decide is not one that rejects every packet, and needs no program.
        let settled = alternatives.iter().all(|one| one.check.is_none())
            && alternatives.iter().any(|one| one.keys().next().is_some());
        let program = if settled { None } else { Some(tapline_filter::compile(text, options)?) };
        let open = alternatives.iter().filter(|one| one.check.is_some()).count();
        if open > ASKED_MAX && program.as_ref().is_some_and(broad::is_broad) {
            let all: Vec<Conjunction> = alternatives.iter().map(|one| one.conditions.clone()).collect();
            alternatives = Box::new([made(common(&all))]);
        }
        let needed = alternatives.iter().any(Alternative::may_need_program);
        let (mut constants, mut asked_otherwise) = (Vec::new(), Vec::new());
        collect(&predicates.root, &mut constants, &mut asked_otherwise);
        Ok(Filter {
            alternatives,
            constants: constants.into_boxed_slice(),
            asked_otherwise: asked_otherwise.into(),
            program: program.filter(|_| needed).map(backend),
        })
    }

    /// A filter that is only a program, such as one that an application brings along. The program runs on every
    /// packet: no part of it can be shared.
    pub fn from_program(program: Arc<dyn PacketFilter>) -> Filter {
        let needs = Needs { open: true, ..Needs::default() };
        let alternatives = Box::new([Alternative::new(Conjunction::default(), needs)]);
        let (constants, asked_otherwise) = (Box::default(), Arc::new([]));
        Filter { alternatives, constants, asked_otherwise, program: Some(program) }
    }

    /// A filter of one alternative, all of whose parts must be captured.
    pub(super) fn of(conditions: Conjunction, names: impl Fn(BitField) -> &'static str) -> Filter {
        let constants = conditions.parts.iter().filter_map(|(part, condition)| {
            let value = *condition.among.as_ref()?.first()?;
            Some(Constant { name: names(*part), value, mask: part.mask, part: *part })
        });
        let constants = constants.collect();
        let needs = Needs::of_parts(conditions.parts.iter().map(|(part, _)| *part));
        let alternatives = Box::new([Alternative::new(conditions, needs)]);
        Filter { alternatives, constants, asked_otherwise: Arc::new([]), program: None }
    }

    /// The numbers that fields of the packet are compared with, in the order of the text. A primitive may have
    /// several: `host` compares source and destination, and those of ARP.
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// Whether some packets are decided by the filter's own program: for conditions that cannot be merged, and for
    /// packets that were cut too early.
    pub fn has_program(&self) -> bool {
        self.program.is_some()
    }

    /// A copy of the filter with other numbers: pairs of a constant's index and its new number. Takes microseconds,
    /// without a compiler.
    ///
    /// # Errors
    /// [`ConstantError`] if the result might not be the meaning of the changed text; the filter is as it was.
    pub fn with(&self, changes: &[(usize, u32)]) -> Result<Filter, ConstantError> {
        if self.program.is_some() {
            return Err(ConstantError::OwnProgram);
        }
        let mut constants = self.constants.clone();
        for (index, value) in changes {
            let constant = constants.get_mut(*index).ok_or(ConstantError::NoSuchConstant(*index))?;
            if value & !constant.mask != 0 {
                return Err(ConstantError::TooLarge(*index));
            }
            constant.value = *value;
        }
        for (index, _) in changes {
            self.check_entangled(&constants, *index)?;
        }
        let changed = |part: BitField, value: u32| {
            let at = self.constants.iter().position(|old| old.part == part && old.value == value);
            at.map_or(value, |at| constants[at].value)
        };
        let alternatives = self.alternatives.iter().map(|one| one.with(&changed)).collect();
        let asked_otherwise = Arc::clone(&self.asked_otherwise);
        Ok(Filter { alternatives, constants, asked_otherwise, program: None })
    }

    /// Checks that numbers of one field are equal after the change where they were before, and only there; and that
    /// no other condition tests the field.
    fn check_entangled(&self, changed: &[Constant], index: usize) -> Result<(), ConstantError> {
        let part = changed[index].part;
        let pairs = || self.constants.iter().zip(changed).filter(|(old, _)| old.part.same_bytes(part));
        let first = (&self.constants[index], &changed[index]);
        let alike = |(old, new): (&Constant, &Constant)| {
            old.part == part && (old.value == first.0.value) == (new.value == first.1.value)
        };
        let otherwise = self.asked_otherwise.iter().any(|own| own.same_bytes(part));
        if otherwise || !pairs().all(alike) {
            return Err(ConstantError::Entangled(index));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter")
            .field("alternatives", &self.alternatives.len())
            .field("constants", &self.constants)
            .field("has_program", &self.has_program())
            .finish()
    }
}

impl Alternative {
    fn new(conditions: Conjunction, needs: Needs) -> Alternative {
        let (layout, in_key) = choose(&conditions);
        let rest = conditions.parts.iter().filter(|(part, _)| !in_key.contains(part));
        let rest: Box<[(BitField, Numbers)]> =
            rest.map(|(part, condition)| (*part, Numbers::new(condition))).collect();
        let covered = Needs::of_parts(conditions.parts.iter().map(|(part, _)| *part));
        let left = (!needs.implied_by(&covered)).then(|| needs.clone());
        let check = (!rest.is_empty() || left.is_some()).then_some(Check { rest, needs: left });
        let keys = keys(&layout, &in_key, &conditions);
        Alternative { conditions, layout: Arc::new(layout), keys, check, needs }
    }

    /// The numbers that a part must be one of, for each such part.
    pub(super) fn numbers(&self) -> impl Iterator<Item = (BitField, &[u32])> {
        self.conditions
            .parts
            .iter()
            .filter_map(|(part, condition)| Some((*part, condition.among.as_deref()?)))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u64]> {
        let words = self.layout.words();
        // A layout of no bits has one key, of no words.
        let count = self.keys.len().checked_div(words).unwrap_or(1);
        (0..count).map(move |at| &self.keys[at * words..][..words])
    }

    /// The range that is left to check for a packet that has one of the keys, if a range is all that is left.
    pub(super) fn bounds(&self) -> Option<(BitField, Bounds)> {
        let Check { rest, needs: None } = self.check.as_ref()? else { return None };
        let [(part, Numbers::Listed(Condition { among: None, without, low, high }))] = &**rest else {
            return None;
        };
        without.is_empty().then_some((*part, Bounds { low: *low, high: *high }))
    }

    fn may_need_program(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.needs.is_some())
    }

    /// Whether the filter accepts a packet that has one of the keys.
    pub(super) fn accepts(&self, packet: Packet<'_>, program: Option<&dyn PacketFilter>) -> bool {
        let Some(check) = &self.check else { return true };
        let holds = |(part, numbers): &(BitField, Numbers)| {
            part.read(packet).is_some_and(|value| numbers.holds(value))
        };
        check.rest.iter().all(holds) && settled(check.needs.as_ref(), packet, program)
    }

    /// Whether the filter accepts a packet of unknown keys.
    pub(super) fn accepts_unseen(&self, packet: Packet<'_>, program: Option<&dyn PacketFilter>) -> bool {
        let holds = |(part, condition): &(BitField, Condition)| {
            part.read(packet).is_some_and(|value| condition.holds(value))
        };
        let needs = self.check.as_ref().and_then(|check| check.needs.as_ref());
        self.conditions.parts.iter().all(holds) && settled(needs, packet, program)
    }

    fn with(&self, changed: &impl Fn(BitField, u32) -> u32) -> Alternative {
        let mut conditions = self.conditions.clone();
        for (part, condition) in &mut conditions.parts {
            for numbers in condition.among.iter_mut().chain([&mut condition.without]) {
                numbers.iter_mut().for_each(|number| *number = changed(*part, *number));
                numbers.sort_unstable();
            }
        }
        if self.check.is_some() {
            return Alternative::new(conditions, self.needs.clone());
        }
        // The parts are the same, so the layout is too.
        let in_key: Vec<BitField> = conditions.parts.iter().map(|(part, _)| *part).collect();
        let keys = keys(&self.layout, &in_key, &conditions);
        Alternative {
            conditions,
            layout: Arc::clone(&self.layout),
            keys,
            check: None,
            needs: self.needs.clone(),
        }
    }
}

/// The program decides if bytes are missing or a condition is open; a filter without one has no open condition.
fn settled(needs: Option<&Needs>, packet: Packet<'_>, program: Option<&dyn PacketFilter>) -> bool {
    match (needs, program) {
        (Some(needs), Some(program)) => needs.met_by(packet) || program.accepts(packet),
        (Some(needs), None) => needs.met_by(packet),
        (None, _) => true,
    }
}

/// The parts that go into the key: those with few numbers first, as long as keys stay few and short.
fn choose(conditions: &Conjunction) -> (Layout, Vec<BitField>) {
    let mut counted: Vec<(usize, BitField)> = conditions
        .parts
        .iter()
        .filter_map(|(part, condition)| Some((condition.among.as_ref()?.len(), *part)))
        .collect();
    counted.sort_by_key(|(count, _)| *count);
    let mut keys = 1;
    let within = |(count, part): &(usize, BitField)| {
        keys *= count;
        (keys <= KEYS_MAX).then_some(*part)
    };
    let mut parts: Vec<BitField> = counted.iter().map_while(within).collect();
    parts.sort_unstable();
    loop {
        if let Some(layout) = Layout::new(&parts) {
            return (layout, parts);
        }
        parts.pop();
    }
}

/// Every combination of the numbers of `parts`.
fn keys(layout: &Layout, parts: &[BitField], conditions: &Conjunction) -> Box<[u64]> {
    let numbers: Vec<(BitField, &[u32])> = conditions
        .parts
        .iter()
        .filter(|(part, _)| parts.contains(part))
        .map(|(part, condition)| (*part, condition.among.as_deref().unwrap_or(&[])))
        .collect();
    let count = numbers.iter().map(|(_, numbers)| numbers.len()).product();
    let mut keys = Vec::with_capacity(count * layout.words());
    let mut values: Vec<(BitField, u32)> = Vec::with_capacity(numbers.len());
    for combination in 0..count {
        let mut rest = combination;
        values.clear();
        for (part, numbers) in &numbers {
            values.push((*part, numbers[rest % numbers.len()]));
            rest /= numbers.len();
        }
        if let Some(key) = layout.key(&values) {
            let key: [u64; WORDS_MAX] = key;
            keys.extend_from_slice(&key[..layout.words()]);
        }
    }
    keys.into_boxed_slice()
}

impl Numbers {
    fn new(condition: &Condition) -> Numbers {
        let Some([low, .., high]) = condition.among.as_deref() else {
            return Numbers::Listed(condition.clone());
        };
        let numbers = condition.among.as_deref().unwrap_or(&[]);
        if numbers.len() < BITMAP_MIN || high - low >= BITMAP_BITS_MAX {
            return Numbers::Listed(condition.clone());
        }
        let mut bits = vec![0_u64; ((high - low) / 64 + 1) as usize];
        numbers.iter().for_each(|n| bits[((n - low) / 64) as usize] |= 1 << ((n - low) % 64));
        Numbers::Bitmap { low: *low, bits: bits.into_boxed_slice() }
    }

    #[inline]
    fn holds(&self, value: u32) -> bool {
        match self {
            Numbers::Listed(condition) => condition.holds(value),
            Numbers::Bitmap { low, bits } => {
                let distance = value.wrapping_sub(*low);
                bits.get((distance / 64) as usize).is_some_and(|word| word >> (distance % 64) & 1 != 0)
            }
        }
    }
}

/// The numbers that fields are compared with for equality, each once, in the order of the text; and the fields with
/// other conditions.
fn collect(predicate: &Predicate, constants: &mut Vec<Constant>, otherwise: &mut Vec<BitField>) {
    match predicate {
        Predicate::Not(inner) => collect(inner, constants, otherwise),
        Predicate::Chain(first, rest) => {
            collect(first, constants, otherwise);
            rest.iter().for_each(|(_, part)| collect(part, constants, otherwise));
        }
        Predicate::Test(test) if test.compare == Compare::Equal => {
            constants.extend(constant(test).filter(|new| !constants.contains(new)));
        }
        other => {
            if let Literal::Part(part, _) = literal(other, true) {
                otherwise.push(part);
            }
        }
    }
}

fn constant(test: &FieldTest) -> Option<Constant> {
    let part = BitField::of(test.field, test.mask)?;
    let FieldTest { name, value, .. } = *test;
    (value & !part.mask == 0).then_some(Constant { name, value, mask: part.mask, part })
}
