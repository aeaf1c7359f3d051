//! Interfaces of a capture, as its reader numbers them.
//!
//! ```text
//! the daemon's numbers   0 1 2 3    --> ours: the same ones, until a daemon restarts with another list
//! behind its list        4          --> the daemon is asked; without an answer: the interface without a name
//! ```
//!
//! The list only grows, so that a number stays valid.

use std::time::{Duration, Instant};

use tapline_packet::{Batch, Interface, InterfaceId, LinkType, Record};
use tapline_sys::Wakeup;

use crate::client::{FILTERS_LEN_MAX, ask, unexpected};
use crate::protocol::{AttachedReader, INTERFACES_MAX, OfferedInterface, Reply, Request};
use crate::{Channel, Error};

/// The description of the interface without a name.
const UNNAMED: &str = "interfaces that the daemon does not name";
/// The longest wait for an answer, in which no packet is read.
pub(crate) const QUESTION_WAIT: Duration = Duration::from_secs(1);
/// The time before a daemon that did not answer is asked again.
const SILENCE: Duration = Duration::from_secs(10);

/// The interfaces that a reader knows.
pub(crate) struct InterfaceTable {
    capture: String,
    snap_len: u32,
    /// The filter in force, of which each interface has a copy as long as there is room for it.
    filter: String,
    filters_len: usize,
    list: Vec<Interface>,
    /// Our numbers, by those of the daemon.
    numbers: Vec<InterfaceId>,
    /// The interface of packets whose own one is not known.
    unnamed: Option<InterfaceId>,
    /// Whether all numbers of the daemon are ours.
    is_same: bool,
    /// Whether the daemon answers the question.
    answers: bool,
    /// Questions without an answer so far: one may come after the wait for it.
    outstanding: u32,
    /// The daemon is not asked before.
    not_before: Option<Instant>,
}

impl InterfaceTable {
    /// The interfaces of an attachment, whose packets `filter` selects.
    pub(crate) fn new(capture: &str, attached: &AttachedReader, filter: String) -> InterfaceTable {
        let mut table = InterfaceTable {
            capture: capture.to_owned(),
            snap_len: attached.offer.snap_len,
            filter,
            filters_len: 0,
            list: Vec::new(),
            numbers: Vec::new(),
            unnamed: None,
            is_same: true,
            answers: attached.interfaces_max > 0,
            outstanding: 0,
            not_before: None,
        };
        table.join(&attached.offer.interfaces);
        table
    }

    pub(crate) fn list(&self) -> &[Interface] {
        &self.list
    }

    /// Whether the daemon has named this number.
    pub(crate) fn knows(&self, number: u32) -> bool {
        (number as usize) < self.numbers.len()
    }

    /// Asks the daemon for interfaces up to this number, and waits so long for an answer at most; `interrupt` ends the
    /// wait. A daemon that is silent is asked again later, one that answers with an error is not.
    ///
    /// # Errors
    /// [`Error::NoInterfaces`] from an older daemon; the error of the connection, a refusal, or an answer without the
    /// number.
    pub(crate) fn ask(
        &mut self,
        channel: &mut Channel,
        number: u32,
        wait: Duration,
        interrupt: Option<&Wakeup>,
    ) -> Result<(), Error> {
        if !self.answers {
            return Err(Error::NoInterfaces);
        }
        let now = Instant::now();
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return Err(Error::Silent);
        }
        let answered = self.learn(channel, number, now + wait, interrupt);
        match answered {
            Ok(()) => self.not_before = None,
            Err(Error::Silent | Error::Interrupted) => self.not_before = Some(now + SILENCE),
            Err(_) => self.answers = false,
        }
        answered
    }

    fn learn(
        &mut self,
        channel: &mut Channel,
        number: u32,
        until: Instant,
        interrupt: Option<&Wakeup>,
    ) -> Result<(), Error> {
        while !self.knows(number) {
            let from = self.numbers.len() as u32;
            let request = Request::Interfaces { capture: self.capture.clone(), from };
            self.outstanding += 1;
            match ask(channel, &request, until, interrupt)? {
                Reply::Interfaces { from: first, list } if first == from && !list.is_empty() => {
                    self.outstanding -= 1;
                    if self.numbers.len() + list.len() > INTERFACES_MAX {
                        return Err(Error::protocol(format!("more than {INTERFACES_MAX} interfaces")));
                    }
                    self.join(&list);
                }
                // To an earlier question: the answer to this one is still to come.
                Reply::Interfaces { .. } if self.outstanding > 1 => self.outstanding -= 1,
                other => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Goes on with a daemon that was restarted: interfaces that it has too keep our numbers.
    ///
    /// # Errors
    /// [`Error::OtherInterfaces`] if its packets are of another link type.
    pub(crate) fn go_on_with(&mut self, next: InterfaceTable) -> Result<(), Error> {
        let link_type = |table: &InterfaceTable| table.list.first().map(|interface| interface.link_type);
        if link_type(self) != link_type(&next) {
            return Err(Error::OtherInterfaces);
        }
        self.numbers.clear();
        (self.is_same, self.answers) = (true, next.answers);
        (self.outstanding, self.not_before) = (0, None);
        next.list.into_iter().for_each(|interface| self.add(interface));
        Ok(())
    }

    fn join(&mut self, offered: &[OfferedInterface]) {
        for offered in offered {
            self.add(offered.interface(self.snap_len, &self.filter));
        }
    }

    /// Adds the daemon's next interface, under the number of one that the daemon before had, or under a new one.
    fn add(&mut self, interface: Interface) {
        let next = self.numbers.len();
        let is_it = |at: &usize| {
            let (id, known) = (InterfaceId(*at as u32), &self.list[*at]);
            let is_same = known.name == interface.name && known.link_type == interface.link_type;
            is_same && self.unnamed != Some(id) && !self.numbers.contains(&id)
        };
        // With one daemon all have a number already.
        let known = match next < self.list.len() {
            true => (next..self.list.len()).chain(0..next).find(is_it),
            false => None,
        };
        let number = match known {
            Some(at) => InterfaceId(at as u32),
            None if self.list.len() >= INTERFACES_MAX => self.unnamed(interface.link_type),
            None => self.push(interface),
        };
        self.is_same &= number.0 as usize == next;
        self.numbers.push(number);
    }

    fn push(&mut self, mut interface: Interface) -> InterfaceId {
        if self.filters_len + interface.filter.len() > FILTERS_LEN_MAX {
            interface.filter = String::new();
        }
        self.filters_len += interface.filter.len();
        self.list.push(interface);
        InterfaceId(self.list.len() as u32 - 1)
    }

    /// The number of the interface without a name.
    fn unnamed(&mut self, link_type: LinkType) -> InterfaceId {
        if let Some(known) = self.unnamed {
            return known;
        }
        let description = UNNAMED.to_owned();
        let unnamed = Interface { description, snap_len: self.snap_len, ..Interface::new("", link_type) };
        let number = self.push(unnamed);
        self.unnamed = Some(number);
        number
    }

    /// Copies the records of a batch with our numbers. `records` stays empty if the daemon's are ours.
    pub(crate) fn renumber(&mut self, batch: &Batch<'_>, greatest: u32, records: &mut Vec<Record>) {
        records.clear();
        if self.is_same && self.knows(greatest) {
            return;
        }
        let link_type = self.list.first().map_or(LinkType::ETHERNET, |first| first.link_type);
        for record in batch.records() {
            let mut meta = record.meta;
            let known = self.numbers.get(meta.interface.0 as usize).copied();
            meta.interface = known.unwrap_or_else(|| self.unnamed(link_type));
            records.push(Record { meta, ..*record });
        }
    }
}

/// The greatest number of an interface in a batch.
pub(crate) fn greatest_number(batch: &Batch<'_>) -> u32 {
    batch.records().iter().map(|record| record.meta.interface.0).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use tapline_packet::Meta;

    use super::*;
    use crate::protocol::OfferedCapture;

    /// A wait for an answer that comes: the thread that gives it may have to wait for a processor.
    const LONG: Duration = Duration::from_secs(60);

    fn offered(name: &str) -> OfferedInterface {
        OfferedInterface { name: name.to_owned(), link_type: 1, ..OfferedInterface::default() }
    }

    fn table(names: &[&str], interfaces_max: u32, filter: &str) -> InterfaceTable {
        let interfaces = names.iter().map(|name| offered(name)).collect();
        let offer = OfferedCapture { interfaces, snap_len: 96, ..OfferedCapture::default() };
        let attached = AttachedReader { offer, interfaces_max, ..AttachedReader::default() };
        InterfaceTable::new("test", &attached, filter.to_owned())
    }

    fn names(table: &InterfaceTable) -> Vec<&str> {
        table.list().iter().map(Interface::label).collect()
    }

    /// Our numbers of packets with these numbers of the daemon; none if they are left as they are.
    fn renumbered(table: &mut InterfaceTable, numbers: &[u32]) -> Vec<u32> {
        let record = |number: &u32| Record {
            meta: Meta { interface: InterfaceId(*number), ..Meta::default() },
            ..Record::default()
        };
        let (batch, mut ours): (Vec<Record>, _) = (numbers.iter().map(record).collect(), Vec::new());
        let batch = Batch::new(&[], &batch);
        table.renumber(&batch, greatest_number(&batch), &mut ours);
        ours.iter().map(|record| record.meta.interface.0).collect()
    }

    /// Answers questions with these lists, and gives the questions.
    fn answering(answers: Vec<Reply>) -> (Channel, std::thread::JoinHandle<Vec<Request>>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let daemon = std::thread::spawn(move || {
            let mut channel = Channel::new(theirs, false);
            let answer = |reply: Reply| {
                let asked = channel.receive().unwrap();
                channel.send(&reply, &[]).unwrap();
                asked
            };
            answers.into_iter().map(answer).collect()
        });
        (Channel::new(ours, false), daemon)
    }

    #[test]
    fn interfaces_that_appear_are_asked_for_in_parts() {
        let mut table = table(&["v0"], 9, "udp");
        let part = |from, names: &[&str]| Reply::Interfaces {
            from,
            list: names.iter().map(|name| offered(name)).collect(),
        };
        let (mut channel, daemon) = answering(vec![part(1, &["v1", "v2"]), part(3, &["v3"])]);
        table.ask(&mut channel, 3, LONG, None).unwrap();
        assert_eq!(names(&table), ["v0", "v1", "v2", "v3"]);
        assert!(table.list().iter().all(|interface| interface.filter == "udp" && interface.snap_len == 96));
        assert!(renumbered(&mut table, &[3, 0]).is_empty(), "the daemon's numbers are ours");
        let question = |from| Request::Interfaces { capture: "test".to_owned(), from };
        assert_eq!(daemon.join().unwrap(), [question(1), question(3)]);
    }

    /// Packets whose interface has no name are lent all the same, and the daemon is asked once.
    #[test]
    fn an_answer_without_the_number_ends_the_questions() {
        let nothing = Reply::Interfaces { from: 1, list: Vec::new() };
        let wrong = Reply::Interfaces { from: 0, list: vec![offered("v1")] };
        for answer in [nothing, wrong, Reply::Error("no".to_owned())] {
            let mut table = table(&["v0"], 9, "");
            let (mut channel, daemon) = answering(vec![answer]);
            assert!(table.ask(&mut channel, 1, LONG, None).is_err());
            daemon.join().unwrap();
            assert!(matches!(table.ask(&mut channel, 1, QUESTION_WAIT, None), Err(Error::NoInterfaces)));
            assert_eq!(renumbered(&mut table, &[0, 1, u32::MAX]), [0, 1, 1]);
            assert_eq!(names(&table), ["v0", UNNAMED]);
        }
        let (mut channel, _daemon) = answering(Vec::new());
        let mut older = table(&["v0"], 0, "");
        assert!(matches!(older.ask(&mut channel, 1, QUESTION_WAIT, None), Err(Error::NoInterfaces)));
    }

    /// A late answer counts for its own question, and not for the next one.
    #[test]
    fn a_silent_daemon_is_asked_again() {
        let answer = |from, name: &str| Reply::Interfaces { from, list: vec![offered(name)] };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut channel, mut daemon) = (Channel::new(ours, false), Channel::new(theirs, false));
        let mut table = table(&["v0"], 9, "");
        let ask = |table: &mut InterfaceTable, channel: &mut Channel, number| {
            table.not_before = None;
            table.ask(channel, number, Duration::ZERO, None)
        };
        assert!(matches!(ask(&mut table, &mut channel, 1), Err(Error::Silent)));
        assert!(matches!(table.ask(&mut channel, 1, QUESTION_WAIT, None), Err(Error::Silent)), "not at once");
        daemon.send(&answer(1, "v1"), &[]).unwrap();
        daemon.send(&answer(1, "v1"), &[]).unwrap();
        daemon.send(&answer(2, "v2"), &[]).unwrap();
        table.not_before = None;
        table.ask(&mut channel, 2, LONG, None).unwrap();
        assert_eq!((names(&table), table.outstanding), (vec!["v0", "v1", "v2"], 1));
        // The answer that is left over is taken for none of another question.
        daemon.send(&Reply::Filtered {}, &[]).unwrap();
        let until = Instant::now() + LONG;
        let filter = Request::Filter { text: String::new() };
        assert_eq!(crate::client::ask(&mut channel, &filter, until, None).unwrap(), Reply::Filtered {});
    }

    #[test]
    fn a_daemon_that_restarts_has_other_numbers() {
        let mut ours = table(&["v0", "v1"], 9, "");
        renumbered(&mut ours, &[7]);
        ours.go_on_with(table(&["v1", "v2", "v0", "v1"], 9, "")).unwrap();
        assert_eq!(names(&ours), ["v0", "v1", UNNAMED, "v2", "v1"]);
        assert_eq!(renumbered(&mut ours, &[0, 1, 2, 3, 4]), [1, 3, 0, 4, 2]);
        ours.go_on_with(table(&["v0", "v1"], 9, "")).unwrap();
        assert!(renumbered(&mut ours, &[0, 1]).is_empty());
        let mut other = table(&["v0"], 9, "");
        other.list[0].link_type = LinkType::RAW;
        assert!(matches!(ours.go_on_with(other), Err(Error::OtherInterfaces)));
    }

    #[test]
    fn the_list_and_its_filters_have_an_end() {
        let (most, filter) = (INTERFACES_MAX, "x".repeat(1000));
        let mut ours = table(&vec!["v"; most], 9, &filter);
        let copies: usize = ours.list().iter().map(|interface| interface.filter.len()).sum();
        assert_eq!(copies, FILTERS_LEN_MAX / 1000 * 1000);
        let more = Reply::Interfaces { from: most as u32, list: vec![offered("v")] };
        let (mut channel, _daemon) = answering(vec![more]);
        assert!(
            ours.ask(&mut channel, most as u32, QUESTION_WAIT, None)
                .unwrap_err()
                .to_string()
                .contains("more than 65536 interfaces")
        );
        ours.go_on_with(table(&["w"], 9, "")).unwrap();
        assert_eq!((ours.list().len(), names(&ours)[most]), (most + 1, UNNAMED));
        assert_eq!(renumbered(&mut ours, &[0]), [most as u32]);
    }
}
