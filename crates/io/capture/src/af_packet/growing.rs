//! Rings that begin small, and grow once there are packets to fill them.
//!
//! ```text
//! opened:   small ring, alone in a fanout group whose program chooses member 0
//! crowded:  a block was full before its time, or half of the blocks were handed over in a second
//! then:     a thread sets up the whole ring on a socket that drops all, joins the group, attaches the filter, has the
//!           program choose member 1, and waits for receive paths
//! after:    the small ring is lent empty and closed
//! ```
//!
//! `any` may mean hundreds of interfaces of containers, most of them idle, and rings are memory that cannot be swapped
//! out. The kernel gives each packet to one member, so none is lost or doubled at the change. Only links without
//! hardware that a pattern matches begin small; those that are named, and adapters, have their whole ring at once.

use std::thread::{self, JoinHandle};

use tapline_packet::{Interface, InterfaceId};
use tapline_source::{Error, Event};
use tapline_sys::{BlockRing, FanoutMode, Link, PacketSocket, RingGeometry, SyscallError};

use super::opener::Opener;
use super::tap::Tap;
use super::{AfPacket, AfPacketError, Phase, extended, size};

/// Rings that are made at once.
const AT_ONCE_MAX: usize = 4;

/// A ring that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growable {
    /// The whole ring.
    pub(super) geometry: RingGeometry,
    /// The fanout group of its socket.
    pub(super) group: u16,
}

/// A ring that is being made for an interface.
#[derive(Debug)]
pub(super) struct Growth {
    id: InterfaceId,
    if_index: u32,
    thread: JoinHandle<Result<Grown, AfPacketError>>,
}

/// A socket with its ring, to which the packets of an interface go.
#[derive(Debug)]
pub(super) struct Grown {
    pub(super) socket: PacketSocket,
    pub(super) ring: BlockRing,
    pub(super) geometry: RingGeometry,
}

/// A socket on its way to become [`Grown`].
pub(super) struct Larger {
    pub(super) socket: PacketSocket,
    /// The filter, which is not attached yet.
    pub(super) accepted: extended::Accepted,
    pub(super) growable: Growable,
    pub(super) receive_hash: bool,
    pub(super) ignores_sent: bool,
    pub(super) if_index: u32,
    pub(super) name: String,
}

impl Larger {
    fn set_up(self) -> Result<Grown, AfPacketError> {
        let Larger { socket, accepted, growable, receive_hash, ignores_sent, if_index, name } = self;
        let map = |geometry: &RingGeometry| socket.map_ring(geometry, receive_hash);
        let (ring, geometry) = size::largest(growable.geometry, &name, map)?;
        let change = || -> Result<(), SyscallError> {
            socket.bind(if_index)?;
            socket.join_fanout(Some(growable.group), FanoutMode::Program, ignores_sent)?;
            accepted.attach(&socket)?;
            socket.choose_member(1)
        };
        change().map_err(|error| AfPacketError::of_call(&name, error))?;
        Ok(Grown { socket, ring, geometry })
    }
}

impl Opener {
    /// The ring to begin with on an interface whose whole ring is `whole`, if it may grow.
    pub(super) fn first_ring(&self, link: &Link, whole: RingGeometry, rings: u64) -> Option<RingGeometry> {
        let settings = &self.settings;
        let is_chosen_size = settings.ring_len.is_some() || settings.min_packets.is_some();
        let is_simple = settings.workers == 1 && settings.tally.is_none() && !settings.is_restrictable;
        let may_grow = is_simple && !is_chosen_size;
        let is_virtual = !link.kind.is_empty() && !self.patterns.is_named(&link.name);
        let first = size::first(&whole, rings);
        (may_grow && is_virtual && first.len() < whole.len()).then_some(first)
    }
}

/// Makes a group of a bound socket alone. Returns its number.
pub(super) fn make_group(socket: &PacketSocket, ignores_sent: bool) -> Result<u16, SyscallError> {
    let group = socket.join_fanout(None, FanoutMode::Program, ignores_sent)?;
    socket.choose_member(0)?;
    Ok(group)
}

impl AfPacket {
    /// Begins to make the whole ring of a tap whose ring fills.
    pub(super) fn grow(&mut self, index: usize) {
        if self.growing.len() >= AT_ONCE_MAX || self.phase != Phase::Running {
            return;
        }
        let tap = &mut self.taps[index];
        let Some(growable) = tap.growable.take() else { return };
        let interface = &self.interfaces[tap.id.0 as usize];
        let (id, if_index, name) = (tap.id, tap.if_index, tap.name.clone());
        let begun = self.opener.larger(tap, interface, growable).and_then(|larger| {
            let thread = thread::Builder::new().name("tapline-ring".to_owned());
            thread.spawn(move || larger.set_up()).map_err(|error| Error::source(&name, error))
        });
        match begun {
            Ok(thread) => self.growing.push(Growth { id, if_index, thread }),
            Err(error) => self.tell_small(id, &error.to_string()),
        }
    }

    /// Takes rings that are ready; waits for all if `waits`.
    pub(super) fn finish_growing(&mut self, waits: bool) {
        let mut at = 0;
        while at < self.growing.len() {
            if !waits && !self.growing[at].thread.is_finished() {
                at += 1;
                continue;
            }
            let Growth { id, if_index, thread } = self.growing.remove(at);
            match thread.join() {
                Ok(Ok(grown)) => self.change_over(id, if_index, grown),
                Ok(Err(error)) => self.tell_small(id, &error.to_string()),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    }

    /// Goes on with the larger ring; the small one is closed once it is empty.
    fn change_over(&mut self, id: InterfaceId, if_index: u32, grown: Grown) {
        let is_small = |tap: &&mut Tap| tap.id == id && tap.if_index == if_index && !tap.name.is_empty();
        let Some(small) = self.taps.iter_mut().find(is_small) else { return };
        // So that it is known when it is empty; nothing comes to it any more.
        let _ = small.read_statistics();
        let larger = small.succeeded_by(grown);
        self.taps.push(larger);
    }

    fn tell_small(&mut self, id: InterfaceId, why: &str) {
        let name = self.interfaces[id.0 as usize].name.clone();
        let text = format!("its ring stays small, as a larger one failed: {why}");
        self.events.push(Event { interface: name, text, is_warning: true });
    }
}

impl Opener {
    /// A socket for a larger ring, with the filter that is wanted by now.
    fn larger(&mut self, tap: &Tap, interface: &Interface, growable: Growable) -> Result<Larger, Error> {
        let (socket, accepted) = self.second_socket(tap, interface)?;
        Ok(Larger {
            socket,
            accepted,
            growable,
            receive_hash: self.settings.receive_hash,
            ignores_sent: self.ignores_sent(tap.is_loopback),
            if_index: tap.if_index,
            name: tap.name.clone(),
        })
    }
}
