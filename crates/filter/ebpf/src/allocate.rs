//! Registers for variables, by a scan over the steps in order.
//!
//! ```text
//! r0 r1      for the lowering: what comes from and goes to the stack, long constants
//! r2 .. r5   lost at a socket filter's packet load
//! r6         the context, where it is needed; packet loads want it there
//! r7 r8      XDP: the packet's start and end
//! .. r9      kept
//! stack      512 bytes: 64 variables
//! ```
//!
//! A variable lives from its first writer to its last reader. Jumps go forward only, so nothing outside of that
//! stretch sees it. When registers run out, the variable whose last reader is farthest goes to the stack, for all of
//! its life. Its stack slot is written before it is read, as the variable was.

use super::step::{Step, Variable};
use tapline_bpf::ebpf::Register;

/// Places on the stack.
const SLOTS_MAX: usize = 64;

/// The last place, where packet bytes are gathered (`lower`): no variable's in programs that do.
pub(super) const SCRATCH: i16 = -8 * SLOTS_MAX as i16;

/// The register or stack slot of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Register(Register),
    /// Bytes from the frame's end, a negative multiple of 8.
    Stack(i16),
}

/// The registers and stack slots of all variables.
#[derive(Debug)]
pub(super) struct Locations {
    homes: Vec<Location>,
}

impl Locations {
    /// The register or stack slot of a variable.
    pub(super) fn of(&self, variable: Variable) -> Location {
        match variable {
            Variable::Free(number) => self.homes[number as usize],
            Variable::Context => Location::Register(Register(6)),
            Variable::Data => Location::Register(Register(7)),
            Variable::DataEnd => Location::Register(Register(8)),
        }
    }
}

/// The registers that there are for free variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    /// Lost at packet loads.
    pub(super) lost: &'static [u8],
    pub(super) kept: &'static [u8],
    /// Whether the last place on the stack is taken.
    pub(super) has_scratch: bool,
}

/// The stretch in which a variable is alive. A step at `n` reads at `2n` and writes at `2n + 1`.
#[derive(Clone, Copy, Debug)]
struct Life {
    variable: u32,
    start: u32,
    end: u32,
    /// Whether it lives across a packet load.
    crosses: bool,
    /// A variable whose register would save a move.
    friend: Option<u32>,
}

/// Assigns a home to each of `count` variables.
///
/// # Errors
/// Number of variables on the stack at once, as an error, if there are too many.
pub(super) fn allocate(steps: &[Step], count: usize, pool: Pool) -> Result<Locations, usize> {
    let mut lives = lives(steps, count);
    lives.sort_unstable_by_key(|life| life.start);
    let mut scan =
        Scan { pool, homes: vec![None; count], active: Vec::new(), free: [true; 11], spilled: Vec::new() };
    lives.iter().for_each(|life| scan.place(*life));
    let Scan { homes, mut spilled, .. } = scan;
    let mut homes: Vec<Location> =
        homes.into_iter().map(|home| home.map_or(Location::Stack(0), Location::Register)).collect();
    spilled.sort_unstable_by_key(|life| life.start);
    give_slots(&spilled, &mut homes, SLOTS_MAX - usize::from(pool.has_scratch))?;
    Ok(Locations { homes })
}

fn lives(steps: &[Step], count: usize) -> Vec<Life> {
    let mut lives: Vec<Option<Life>> = vec![None; count];
    let mut loads = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let at = at as u32 * 2;
        step.for_each_read(|variable| meet(&mut lives, variable, at, None));
        if let Some(variable) = step.written() {
            meet(&mut lives, variable, at + 1, friend(step));
        }
        if step.calls() {
            loads.push(at);
        }
    }
    let crosses = |life: &Life| {
        let first = loads.partition_point(|&at| at <= life.start);
        loads.get(first).is_some_and(|&at| at + 1 < life.end)
    };
    lives.into_iter().flatten().map(|life| Life { crosses: crosses(&life), ..life }).collect()
}

fn meet(lives: &mut [Option<Life>], variable: Variable, at: u32, friend: Option<u32>) {
    let Variable::Free(variable) = variable else { return };
    match &mut lives[variable as usize] {
        Some(life) => life.end = at,
        life => *life = Some(Life { variable, start: at, end: at, crosses: false, friend }),
    }
}

/// The variable from which the step's result is made.
fn friend(step: &Step) -> Option<u32> {
    let mut first = None;
    step.for_each_read(|variable| {
        if let Variable::Free(variable) = variable {
            first.get_or_insert(variable);
        }
    });
    first
}

struct Scan {
    pool: Pool,
    homes: Vec<Option<Register>>,
    active: Vec<(Life, Register)>,
    free: [bool; 11],
    spilled: Vec<Life>,
}

impl Scan {
    fn place(&mut self, life: Life) {
        self.expire(life.start);
        let register = self.free_register(&life).or_else(|| self.evict(&life));
        match register {
            Some(register) => {
                self.free[usize::from(register.0)] = false;
                self.homes[life.variable as usize] = Some(register);
                self.active.push((life, register));
            }
            None => self.spilled.push(life),
        }
    }

    fn expire(&mut self, start: u32) {
        let free = &mut self.free;
        self.active.retain(|(life, register)| {
            let is_over = life.end < start;
            free[usize::from(register.0)] |= is_over;
            !is_over
        });
    }

    fn free_register(&self, life: &Life) -> Option<Register> {
        let is_allowed = |register: u8| self.is_allowed(life, register) && self.free[usize::from(register)];
        let friend = life.friend.and_then(|friend| self.homes[friend as usize]);
        let liked = friend.filter(|register| is_allowed(register.0));
        let any = self.pool.lost.iter().chain(self.pool.kept).copied().find(|&register| is_allowed(register));
        liked.or(any.map(Register))
    }

    fn is_allowed(&self, life: &Life, register: u8) -> bool {
        self.pool.kept.contains(&register) || (!life.crosses && self.pool.lost.contains(&register))
    }

    /// Sends the variable that is read last to the stack, if it is read after this one, and frees its register.
    fn evict(&mut self, life: &Life) -> Option<Register> {
        let candidates = self.active.iter().enumerate();
        let allowed = candidates.filter(|(_, (_, register))| self.is_allowed(life, register.0));
        let (index, _) = allowed.max_by_key(|(_, (other, _))| other.end)?;
        if self.active[index].0.end <= life.end {
            return None;
        }
        let (other, register) = self.active.swap_remove(index);
        self.homes[other.variable as usize] = None;
        self.spilled.push(other);
        Some(register)
    }
}

/// Places on the stack for variables in the order of their starts; a place is used again when its variable is dead.
fn give_slots(spilled: &[Life], homes: &mut [Location], slots_max: usize) -> Result<(), usize> {
    let mut busy_until: Vec<u32> = Vec::new();
    for life in spilled {
        let slot = match busy_until.iter().position(|&end| end < life.start) {
            Some(slot) => slot,
            None => {
                busy_until.push(0);
                busy_until.len() - 1
            }
        };
        busy_until[slot] = life.end;
        homes[life.variable as usize] = Location::Stack(-8 * (slot.min(slots_max) as i16 + 1));
    }
    if busy_until.len() <= slots_max { Ok(()) } else { Err(busy_until.len()) }
}
