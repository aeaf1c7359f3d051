//! Links that come, go and change.
//!
//! ```text
//! change                    tap's state    what is done
//! switched off              Down           nothing: the kernel takes the socket off, and on again when it is up
//! switched on               Running        nothing
//! removed                   Gone           what the ring holds is still lent
//! created again, same name  Running        one worker: the socket is bound to it; several: new sockets (`workers.rs`)
//! new, and it is meant      Running        a tap is opened; if that fails, it is tried again (`uncaptured.rs`)
//! ```
//!
//! There are two sources of events: `ENETDOWN` on the socket at once, and rtnetlink with the details. When rtnetlink
//! lost messages, all links are examined.

use std::time::Instant;

use tapline_source::Error;
use tapline_sys::{Link, LinkChange};

use super::tap::Tap;
use super::{AfPacket, AfPacketError, OpenTap, call_error};
use crate::link_state::LinkState;

const ENETDOWN: i32 = 100;

impl AfPacket {
    /// Takes note of an error that waits on a tap's socket.
    pub(super) fn hear_error(&mut self, index: usize) -> Result<(), Error> {
        let tap = &mut self.taps[index];
        let error = tap.socket.take_error().map_err(|e| call_error(&tap.name, e))?;
        match error {
            Some(error) if error.raw_os_error() != Some(ENETDOWN) => {
                let name = tap.name.clone();
                self.tell(&name, format!("reported an error: {error}"), true);
            }
            // rtnetlink tells the rest.
            _ => {}
        }
        Ok(())
    }

    /// Follows the changes that have arrived since the last call.
    pub(super) fn follow_links(&mut self) -> Result<(), Error> {
        // Before the messages: those from before a tap was opened are read then, as that its former interface was removed.
        self.arrived.append(&mut self.opener.shared.arrivals.take(self.opener.worker));
        let mut changes = std::mem::take(&mut self.changes);
        let heard = self.monitor.changes(&mut changes).map_err(|e| call_error("network interfaces", e));
        let missed = changes.contains(&LinkChange::Missed);
        for change in changes.drain(..) {
            match change {
                LinkChange::Present(link) => self.follow_present(&link)?,
                LinkChange::Gone { index, .. } => self.follow_gone(index),
                LinkChange::Missed => {}
            }
        }
        self.changes = changes;
        heard?;
        if missed {
            self.look_at_all_links()?;
        }
        self.admit_arrived()?;
        self.close_drained();
        self.try_again()
    }

    /// Ends the capture when all interfaces have been gone for too long.
    pub(super) fn check_gone(&mut self) -> Result<(), Error> {
        let is_all_gone = self.taps.iter().all(|tap| tap.state == LinkState::Gone);
        if !is_all_gone || self.opener.patterns.is_open() {
            self.gone_since = None;
            return Ok(());
        }
        let since = *self.gone_since.get_or_insert_with(Instant::now);
        let return_timeout = self.opener.settings.return_timeout;
        match return_timeout {
            Some(wait) if since.elapsed() >= wait && self.is_drained_now()? => {
                let named = self.taps.iter().map(|tap| tap.name.as_str()).filter(|name| !name.is_empty());
                let names: Vec<&str> = named.collect();
                let names = names.join(", ");
                let within =
                    if wait.is_zero() { String::new() } else { format!(" within {} s", wait.as_secs_f32()) };
                Err(Error::source(&names.clone(), AfPacketError::Gone { names, within }))
            }
            _ => Ok(()),
        }
    }

    fn is_drained_now(&mut self) -> Result<bool, Error> {
        for tap in &mut self.taps {
            tap.read_statistics().map_err(|e| call_error(&tap.name, e))?;
        }
        Ok(self.taps.iter().all(Tap::is_drained))
    }

    fn look_at_all_links(&mut self) -> Result<(), Error> {
        let links = self.opener.links().map_err(|error| Error::source("capture", error))?;
        // Another interface may have the number by now.
        let missing = self.taps.iter().filter(|tap| tap.state != LinkState::Gone && !has_interface(tap));
        let missing: Vec<u32> = missing.map(|tap| tap.if_index).collect();
        missing.into_iter().for_each(|index| self.follow_gone(index));
        self.uncaptured.retain(|index| links.iter().any(|link| link.index == index));
        links.iter().try_for_each(|link| self.follow_present(link))
    }

    fn follow_gone(&mut self, if_index: u32) {
        self.uncaptured.retain(|index| index != if_index);
        // One that has the number by now may be captured already.
        let is_it =
            |tap: &&mut Tap| tap.if_index == if_index && tap.state != LinkState::Gone && !has_interface(tap);
        let Some(tap) = self.taps.iter_mut().find(is_it) else { return };
        tap.state = LinkState::Gone;
        let name = tap.name.clone();
        self.tell(&name, "was removed; the capture continues if it comes back".to_owned(), true);
    }

    fn follow_present(&mut self, link: &Link) -> Result<(), Error> {
        let known = |tap: &Tap| tap.if_index == link.index && tap.state != LinkState::Gone;
        match self.taps.iter().position(known) {
            Some(index) => self.follow_state(index, link),
            None => self.follow_new(link)?,
        }
        Ok(())
    }

    fn follow_state(&mut self, index: usize, link: &Link) {
        let tap = &mut self.taps[index];
        let (before, now) = (tap.state, LinkState::of(link));
        tap.state = now;
        let old_name = std::mem::replace(&mut tap.name, link.name.clone());
        if old_name != link.name {
            self.tell(&old_name, format!("is now called {}", link.name), false);
        }
        if now != before {
            self.tell(&link.name, now.news().to_owned(), now != LinkState::Running);
        }
    }

    pub(super) fn follow_new(&mut self, link: &Link) -> Result<(), Error> {
        let patterns = &self.opener.patterns;
        let is_meant = patterns.is_named(&link.name) || (link.is_up() && patterns.matches(&link.name));
        if !is_meant {
            self.uncaptured.retain(|index| index != link.index);
            return Ok(());
        }
        match self.came_back(&link.name, link.hardware_type) {
            Some(index) if self.taps[index].group.is_none() => self.rebind(index, link),
            _ => self.open_new(link),
        }
    }

    /// The tap on a removed interface that one of this name and kind continues.
    fn came_back(&self, name: &str, hardware_type: u16) -> Option<usize> {
        let is_former = |tap: &Tap| {
            tap.state == LinkState::Gone && tap.name == name && tap.hardware_type == hardware_type
        };
        self.taps.iter().position(is_former)
    }

    /// Binds the same socket to an interface that was created again.
    fn rebind(&mut self, index: usize, link: &Link) -> Result<(), Error> {
        let mut events = Vec::new();
        let tap = &mut self.taps[index];
        self.opener.join_promiscuous(link, &tap.socket, &mut events);
        if let Err(error) = tap.rebind(link) {
            // The interface may have gone again meanwhile; then rtnetlink tells that too.
            self.fail(link, "came back but cannot be captured: ", &error.to_string());
            return Ok(());
        }
        self.tell_all(events);
        self.tell(&link.name, "came back".to_owned(), false);
        self.uncaptured.retain(|index| index != link.index);
        Ok(())
    }

    /// Opens a tap on an interface that appeared, or takes the one that another worker opened.
    fn open_new(&mut self, link: &Link) -> Result<(), Error> {
        while let Some(opened) = self.try_open(link) {
            if self.admit(opened)? {
                break;
            }
            // That was on one which had the number before.
        }
        Ok(())
    }

    /// Opens a tap while the capture runs. A failure is reported; it does not end the capture.
    fn try_open(&mut self, link: &Link) -> Option<OpenTap> {
        if let Some(at) = self.arrived.iter().position(|opened| opened.tap.if_index == link.index) {
            return Some(self.arrived.remove(at));
        }
        let (id, rings) = (self.next_id(), self.taps.len() as u64 + 1);
        let opened = self.opener.open_new(link, id, rings);
        opened
            .inspect_err(|error| self.fail(link, "appeared but cannot be captured: ", &error.to_string()))
            .ok()
    }

    /// Takes the taps that another worker opened, of which no message came.
    pub(super) fn admit_arrived(&mut self) -> Result<(), Error> {
        while !self.arrived.is_empty() {
            let opened = self.arrived.remove(0);
            self.admit(opened)?;
        }
        Ok(())
    }

    /// Takes a tap that was opened while the capture runs: its interface is new, or continues a removed one, for a
    /// member of a group cannot be bound again. Returns whether the interface is there.
    fn admit(&mut self, mut opened: OpenTap) -> Result<bool, Error> {
        if self.opener.was_restricted() {
            // Another worker may have had another program.
            self.opener.attach_again(&opened.tap, &opened.interface)?;
        }
        let (name, if_index) = (opened.tap.name.clone(), opened.tap.if_index);
        let is_there = has_interface(&opened.tap);
        if !is_there {
            opened.tap.state = LinkState::Gone;
        }
        self.uncaptured.retain(|index| index != if_index);
        let (is_filtered, is_unfit) = (opened.is_filtered, opened.unfit.is_some());
        let former = self.came_back(&name, opened.tap.hardware_type);
        let id = former.map(|index| self.taps[index].id);
        if let Some(index) = former {
            // The old tap keeps its block while it has packets; its name no longer stands for the interface.
            self.taps[index].name.clear();
        }
        // Packets that the kernel filters no longer are those of another interface: the engine filters them.
        match id.filter(|id| is_filtered || !self.books[id.0 as usize].is_filtered) {
            Some(id) => {
                let OpenTap { mut tap, refuses, events, .. } = opened;
                tap.set_interface(id);
                self.books[id.0 as usize].refuses |= refuses;
                self.taps.push(tap);
                self.tell_all(events);
            }
            None => {
                opened.tap.set_interface(self.next_id());
                self.enter(opened);
            }
        }
        match former {
            Some(_) => self.tell(&name, "came back".to_owned(), false),
            // Of one that cannot have the filter, the event about that says it all.
            None if is_unfit => {}
            None => self.tell(&name, "appeared and is captured too".to_owned(), false),
        }
        Ok(is_there)
    }

    /// Whether the interface of a row is called so: it may have been renamed since, and another may have its name.
    pub(super) fn is_called(&self, row: usize, name: &str) -> bool {
        self.taps.iter().any(|tap| tap.id.0 as usize == row && tap.name == name)
    }

    /// Drops taps that were replaced and have nothing left, but not while a batch is lent.
    fn close_drained(&mut self) {
        let is_replaced = |tap: &Tap| tap.name.is_empty();
        if self.is_lent || !self.taps.iter().any(is_replaced) {
            return;
        }
        let books = &mut self.books;
        self.taps.retain_mut(|tap| {
            let is_closed = is_replaced(tap) && tap.read_statistics().is_ok() && tap.is_drained();
            if is_closed {
                let (counted, delivered) = tap.counters();
                let book = &mut books[tap.id.0 as usize];
                book.closed.add(&counted);
                book.closed_delivered += delivered;
                book.closed_counted.add(&tap.counted_in_kernel().unwrap_or_default());
            }
            !is_closed
        });
        self.current = 0;
    }
}

/// Whether the interface that a tap was opened on is still there, under whatever name.
fn has_interface(tap: &Tap) -> bool {
    tap.socket.has_interface().unwrap_or(true)
}
