//! Groups of readers that share packets among them: a packet that any of a group wants goes to one of those that want
//! it.
//!
//! ```text
//! weight(packet, reader) = scramble(hash of the packet's flow ^ seed of the reader)        the greatest weight gets the packet
//! ```
//!
//! A capture whose packets go to the first reader (`match = "first"`) makes one choice more, among all its readers.
//!
//! Rendezvous hashing (Thaler, Ravishankar 1998): a reader that joins takes flows from the others and none moves
//! between these; of one that leaves only its own flows move. Every worker of a capture chooses alike. The choice is
//! paid from the purse of the group's user, as filters are.

use tapline_packet::headers::{FragmentFlows, Headers};
use tapline_packet::mix::scramble;
use tapline_packet::{BATCH_MAX, Batch, LinkType};
use tapline_tap_client::{GROUP_MEMBERS_MAX, GroupRequest, ShareBy};

use super::readers::Reader;
use crate::budget::{Payer, Purses, spent};

const _: () = assert!(GROUP_MEMBERS_MAX <= 64, "members are bits of a word");

/// All groups of a worker.
#[derive(Default)]
pub(super) struct Groups {
    list: Vec<Group>,
    /// For each packet of a batch the reader that comes first, of those that want it.
    first: Vec<(u64, usize)>,
    /// Fragments that went by their addresses, as their first fragment was not known.
    pub(super) fragments_apart: u64,
}

/// A group: readers of one user in one buffer.
struct Group {
    /// None for root and the owner of the daemon.
    payer: Option<Payer>,
    view: usize,
    request: GroupRequest,
    members: Vec<Member>,
    /// Packets shared out in turn.
    turn: u64,
    fragments: FragmentFlows,
    /// For each packet of a batch the members that want it, as bits; then those that get it.
    wanting: Box<[u64; BATCH_MAX]>,
}

struct Member {
    /// Index in the list of readers.
    at: usize,
    seed: u64,
    priority: u32,
}

impl Groups {
    /// Refuses a reader that would share otherwise than its group does, or one too many.
    ///
    /// # Errors
    /// The refusal, in words.
    pub(super) fn admit(&self, request: &GroupRequest, uid: Option<u32>, view: usize) -> Result<(), String> {
        let Some(group) = self.list.iter().find(|group| group.is_for(request, uid, view)) else {
            return Ok(());
        };
        let GroupRequest { name, by, .. } = &group.request;
        if *by != request.by {
            return Err(format!(
                "the group {name} shares by {}: write ?by={} behind its name",
                by.name(),
                by.name()
            ));
        }
        if group.members.len() >= GROUP_MEMBERS_MAX {
            return Err(format!("the group {name} has {GROUP_MEMBERS_MAX} readers, and no more are allowed"));
        }
        Ok(())
    }

    /// Computes the groups again after readers came or left.
    pub(super) fn rebuild(&mut self, readers: &[Reader]) {
        self.list.iter_mut().for_each(|group| group.members.clear());
        for (at, reader) in readers.iter().enumerate() {
            let Some(request) = &reader.group else { continue };
            let (payer, view) = (reader.payer, reader.view);
            let uid = payer.map(|payer| payer.uid);
            let known = self.list.iter().position(|group| group.is_for(request, uid, view));
            let group = known.unwrap_or_else(|| {
                self.list.push(Group::new(request.clone(), payer, view));
                self.list.len() - 1
            });
            // Rules may have changed.
            self.list[group].payer = payer;
            self.list[group].members.push(Member {
                at,
                seed: scramble(reader.number),
                priority: request.priority,
            });
        }
        self.list.retain(|group| !group.members.is_empty());
    }

    /// Leaves each packet of a batch to one reader of each group, at the cost of the group's user.
    pub(super) fn share(
        &mut self,
        batch: &Batch<'_>,
        link_type: LinkType,
        readers: &mut [Reader],
        purses: &mut Purses,
    ) {
        for group in self.list.iter_mut().filter(|group| group.members.len() > 1) {
            match group.payer {
                None => group.share(batch, link_type, readers),
                Some(payer) => {
                    let ((), cost) = spent(|| group.share(batch, link_type, readers));
                    // A debt shows when the user's filters are asked the next time.
                    purses.spend(payer, cost);
                }
            }
            self.fragments_apart += group.fragments.take_early();
        }
    }

    /// Leaves each of `packets` packets of a batch to the first reader that wants it, of all that have a precedence.
    /// Readers are in the order in which they came.
    pub(super) fn give_to_first(&mut self, packets: usize, readers: &mut [Reader]) {
        self.first.clear();
        self.first.resize(packets, (u64::MAX, usize::MAX));
        for (at, reader) in readers.iter().enumerate() {
            let Some(precedence) = reader.precedence else { continue };
            for index in reader.wanted.iter() {
                self.first[index] = self.first[index].min((precedence, at));
            }
        }
        for (at, reader) in readers.iter_mut().enumerate().filter(|(_, reader)| reader.precedence.is_some()) {
            reader.wanted.retain(|index| self.first[index].1 == at);
        }
    }
}

impl Group {
    fn new(request: GroupRequest, payer: Option<Payer>, view: usize) -> Group {
        Group {
            payer,
            view,
            request,
            members: Vec::new(),
            turn: 0,
            fragments: FragmentFlows::default(),
            wanting: Box::new([0; BATCH_MAX]),
        }
    }

    fn is_for(&self, request: &GroupRequest, uid: Option<u32>, view: usize) -> bool {
        (self.payer.map(|payer| payer.uid), self.view, &self.request.name) == (uid, view, &request.name)
    }

    fn share(&mut self, batch: &Batch<'_>, link_type: LinkType, readers: &mut [Reader]) {
        self.wanting.fill(0);
        for (bit, member) in self.members.iter().enumerate() {
            readers[member.at].wanted.iter().for_each(|index| self.wanting[index] |= 1 << bit);
        }
        for index in 0..batch.len() {
            let wanting = self.wanting[index];
            if wanting & wanting.wrapping_sub(1) != 0 {
                self.wanting[index] = self.choose(wanting, batch, index, link_type);
            }
        }
        for (bit, member) in self.members.iter().enumerate() {
            readers[member.at].wanted.retain(|index| self.wanting[index] >> bit & 1 == 1);
        }
    }

    /// The members, among those that want a packet, that get it: one, except by address.
    fn choose(&mut self, wanting: u64, batch: &Batch<'_>, index: usize, link_type: LinkType) -> u64 {
        let packet = batch.packet(index);
        let headers = || Headers::parse(link_type, packet);
        let wanting_members = (0..self.members.len()).filter(|bit| wanting >> bit & 1 == 1);
        let hash = match self.request.by {
            ShareBy::Flow => self.fragments.flow_hash(&headers(), packet.data, 0),
            ShareBy::Host => headers().host_hash(packet.data, 0),
            ShareBy::Vlan => {
                let headers = headers();
                headers.vlan_hash(self.fragments.flow_hash(&headers, packet.data, 0))
            }
            ShareBy::Inner => {
                let (headers, data) = headers().innermost(packet.data);
                self.fragments.flow_hash(&headers, data, 0)
            }
            ShareBy::Address => {
                let [src, dst] = headers().address_hashes(packet.data, 0);
                return 1 << self.heaviest(wanting, src) | 1 << self.heaviest(wanting, dst);
            }
            ShareBy::Turn => {
                self.turn += 1;
                let place = self.turn % u64::from(wanting.count_ones());
                return 1 << wanting_members.clone().nth(place as usize).unwrap_or(0);
            }
            // Members stand in the order in which they came, and the first of equals is taken.
            ShareBy::First => {
                let first = wanting_members.clone().min_by_key(|bit| self.members[*bit].priority);
                return 1 << first.unwrap_or(0);
            }
        };
        1 << self.heaviest(wanting, hash)
    }

    /// The member with the greatest weight for a hash, among those that want a packet.
    fn heaviest(&self, wanting: u64, hash: u64) -> usize {
        let members = (0..self.members.len()).filter(|bit| wanting >> bit & 1 == 1);
        members.max_by_key(|bit| scramble(hash ^ self.members[*bit].seed)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
