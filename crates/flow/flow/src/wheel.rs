//! Chooses the flows to look at when time goes on: a wheel of lists, in the order in which silence ends them.
//!
//! ```text
//!        cursor (all before it were looked at)
//!          v
//! [ ][ ][ ][a, b][ ][c][ ]...     a list for each tick; a flow stands where its silence would have ended it when it was put there
//! ```
//!
//! That is its deadline here. Packets move no flow: a deadline only gets later, so a flow that is found before its
//! time is moved to its present list. That is one visit for each idle timeout, not one for each packet. Lists lead
//! both ways, so a flow that ends early is taken out at once. A tick is so long that the idle timeout is at most
//! [`TICKS_OF_IDLE`] of them: then all flows of the table are in the order of their silence, to a tick,
//! once those that were found before their time were moved on.

use std::collections::TryReserveError;

/// Lists, a power of two.
const TICKS: usize = 1024;
/// The idle timeout in ticks, at most.
const TICKS_OF_IDLE: i64 = 512;
/// In place of a neighbour: the list ends here; the rest of the number is which.
const LIST: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

/// The most slots.
pub(crate) const SLOTS_MAX: usize = (1 << 30) - 1;

#[derive(Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// Lists of slots by time.
pub(crate) struct Wheel {
    links: Vec<Link>,
    first: Vec<u32>,
    last: Vec<u32>,
    /// A bit for each list that is not empty.
    used: [u64; TICKS / 64],
    /// Nanoseconds of a tick, as a power of two.
    shift: u32,
    /// The tick of the oldest list that may hold anything; `None` before [`begin`](Self::begin).
    cursor: Option<i64>,
    /// The first of the slots that are in no list and wait for another use, each leading to the next.
    free: u32,
}

impl Wheel {
    /// A wheel for `slots` slots, with the idle timeout in nanoseconds.
    ///
    /// # Errors
    /// If there is no memory for the slots.
    pub(crate) fn new(slots: usize, idle_ns: i64) -> Result<Wheel, TryReserveError> {
        let shift = (20..62).find(|shift| idle_ns >> shift < TICKS_OF_IDLE).unwrap_or(62);
        let mut links: Vec<Link> = Vec::new();
        links.try_reserve_exact(slots)?;
        let lists = || vec![NONE; TICKS];
        let used = [0; TICKS / 64];
        Ok(Wheel { links, first: lists(), last: lists(), used, shift, cursor: None, free: NONE })
    }

    /// Sets the time before the first slot is inserted: no deadline is before that.
    pub(crate) fn begin(&mut self, now: i64) {
        self.cursor.get_or_insert(now >> self.shift);
    }

    /// Puts a slot that is in no list into the list of its deadline. Slots come into use one after the other.
    pub(crate) fn insert(&mut self, slot: u32, deadline: i64) {
        let list = self.list_of(deadline);
        let before = self.last[list];
        let link = Link {
            before: if before == NONE { LIST | list as u32 } else { before },
            after: LIST | list as u32,
        };
        match self.links.get_mut(slot as usize) {
            Some(there) => *there = link,
            None => self.links.push(link),
        }
        match before {
            NONE => self.first[list] = slot,
            before => self.links[before as usize].after = slot,
        }
        self.last[list] = slot;
        self.used[list / 64] |= 1 << (list % 64);
    }

    /// Takes a slot out.
    pub(crate) fn remove(&mut self, slot: u32) {
        let Link { before, after } = self.links[slot as usize];
        let end = |neighbour: u32| if neighbour & LIST != 0 { NONE } else { neighbour };
        match before & LIST {
            0 => self.links[before as usize].after = after,
            _ => self.first[(before & !LIST) as usize] = end(after),
        }
        match after & LIST {
            0 => self.links[after as usize].before = before,
            _ => self.last[(after & !LIST) as usize] = end(before),
        }
        if before & after & LIST != 0 {
            let list = (before & !LIST) as usize;
            self.used[list / 64] &= !(1 << (list % 64));
        }
    }

    /// Keeps a slot that is in no list for another use.
    pub(crate) fn give_free(&mut self, slot: u32) {
        self.links[slot as usize] = Link { before: NONE, after: self.free };
        self.free = slot;
    }

    /// A slot that was given back.
    pub(crate) fn take_free(&mut self) -> Option<u32> {
        let slot = self.free;
        self.free = self.links.get(slot as usize)?.after;
        Some(slot)
    }

    /// Forgets every slot; none is in a list.
    pub(crate) fn clear(&mut self) {
        debug_assert!(self.used.iter().all(|used| *used == 0));
        self.links.clear();
        self.free = NONE;
    }

    /// The slot whose list comes first, if its whole tick is before `now`.
    pub(crate) fn due(&mut self, now: i64) -> Option<u32> {
        let now = now >> self.shift;
        // After a leap of the clock every list is due, whichever comes first.
        let cursor = self.cursor?.max(now - TICKS as i64);
        let Some(tick) = self.first_tick(cursor).filter(|tick| *tick < now) else {
            self.cursor = Some(cursor.max(now));
            return None;
        };
        self.cursor = Some(tick);
        Some(self.first[self.list(tick)])
    }

    /// The slot whose list comes first, and its tick.
    pub(crate) fn oldest(&self) -> Option<(u32, i64)> {
        let tick = self.first_tick(self.cursor?)?;
        Some((self.first[self.list(tick)], tick))
    }

    /// The tick of a deadline, as far as the wheel reaches.
    pub(crate) fn tick(&self, deadline: i64) -> i64 {
        let tick = deadline >> self.shift;
        debug_assert!(self.cursor.is_some(), "the wheel has begun");
        let cursor = self.cursor.unwrap_or(tick);
        tick.clamp(cursor, cursor + TICKS as i64 - 1)
    }

    fn list_of(&self, deadline: i64) -> usize {
        let tick = self.tick(deadline);
        self.list(tick)
    }

    fn list(&self, tick: i64) -> usize {
        (tick & (TICKS as i64 - 1)) as usize
    }

    /// The first tick from `cursor` on whose list is not empty.
    fn first_tick(&self, cursor: i64) -> Option<i64> {
        let start = self.list(cursor);
        let words = self.used.len();
        for step in 0..=words {
            let at = (start / 64 + step) % words;
            let mut bits = self.used[at];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            } else if step == words {
                bits &= !(u64::MAX << (start % 64));
            }
            if bits != 0 {
                let list = at * 64 + bits.trailing_zeros() as usize;
                return Some(cursor + ((list + TICKS - start) % TICKS) as i64);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapline_testkit::random::Random;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn places_come_in_the_order_of_their_deadlines() {
        let mut wheel = Wheel::new(2000, 15 * SECOND).expect("there is memory");
        let mut random = Random::new(2);
        let deadlines: Vec<i64> = (0..2000).map(|_| random.below(20 * SECOND as u64) as i64).collect();
        wheel.begin(0);
        deadlines.iter().enumerate().for_each(|(slot, deadline)| wheel.insert(slot as u32, *deadline));
        for slot in (0..2000).step_by(3) {
            wheel.remove(slot);
        }
        let (mut now, mut seen) = (0, 0);
        while now < 21 * SECOND {
            now += SECOND / 7;
            while let Some(slot) = wheel.due(now) {
                let deadline = deadlines[slot as usize];
                assert!(deadline < now && deadline > now - SECOND / 7 - (1 << 26), "{deadline} at {now}");
                assert_ne!(slot % 3, 0);
                wheel.remove(slot);
                seen += 1;
            }
        }
        assert_eq!(seen, 2000 - 667);
        assert!(wheel.oldest().is_none());
    }

    #[test]
    fn a_leap_in_time_finds_all() {
        let mut wheel = Wheel::new(10, SECOND).expect("there is memory");
        wheel.begin(0);
        (0..10).for_each(|slot| wheel.insert(slot, i64::from(slot) * SECOND / 10));
        for slot in 0..10 {
            assert_eq!(wheel.due(i64::MAX), Some(slot));
            wheel.remove(slot);
        }
        assert_eq!(wheel.due(i64::MAX), None);
    }

    #[test]
    fn deadlines_before_the_first_slot_are_kept() {
        let mut wheel = Wheel::new(2, 15 * SECOND).expect("there is memory");
        wheel.begin(100 * SECOND);
        wheel.insert(0, 115 * SECOND);
        wheel.insert(1, 102 * SECOND);
        assert_eq!((wheel.due(102 * SECOND), wheel.due(103 * SECOND)), (None, Some(1)));
    }
}
