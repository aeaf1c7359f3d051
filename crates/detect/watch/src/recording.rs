//! Packets before and after an event, in a file of its own.
//!
//! ```text
//! event at T:  past --packets since T - before--> FileWriter <--packets up to T + after-- as they come
//!                                                 | cannot write: the recording goes on, and its packets are lost
//! ```

use std::collections::HashMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::PathBuf;

use tapline_file::{DirectCreator, FileWriter, Section, WriteOptions};
use tapline_packet::headers::Headers;
use tapline_packet::{Batch, ClockReading, Interface, LinkType, Packet, Record, Selection, Timestamp};

use crate::clock::ClockStep;
use crate::faults::{Failure, Faults};
use crate::key::{Key, Subject};
use crate::past::Past;
use crate::rules::{RecordSettings, RecordedPackets};

/// Recordings at a time, of all rules.
const RECORDINGS_MAX: usize = 16;

/// The packets that a recording takes.
#[derive(Clone, Copy, Debug)]
enum RecordingScope {
    All,
    Host(Option<IpAddr>),
    Pair(Option<IpAddr>, Option<IpAddr>),
    Flow(Subject),
}

impl RecordingScope {
    fn of(only: RecordedPackets, subject: Option<&Subject>) -> RecordingScope {
        match (only, subject) {
            (RecordedPackets::All, _) | (_, None) => RecordingScope::All,
            (RecordedPackets::Src, Some(subject)) => RecordingScope::Host(subject.src),
            (RecordedPackets::Dst, Some(subject)) => RecordingScope::Host(subject.dst),
            (RecordedPackets::Pair, Some(subject)) => RecordingScope::Pair(subject.src, subject.dst),
            (RecordedPackets::Flow, Some(subject)) => RecordingScope::Flow(*subject),
        }
    }

    fn takes(&self, link_type: LinkType, packet: Packet<'_>) -> bool {
        if matches!(self, RecordingScope::All) {
            return true;
        }
        let of = Subject::of_packet(&Headers::parse(link_type, packet), packet);
        let is_between = |one, other| (of.src, of.dst) == (one, other) || (of.src, of.dst) == (other, one);
        match self {
            RecordingScope::All => true,
            RecordingScope::Host(host) => host.is_some() && (of.src == *host || of.dst == *host),
            RecordingScope::Pair(one, other) => one.is_some() && is_between(*one, *other),
            RecordingScope::Flow(flow) => {
                let ports = [(of.src, of.src_port), (of.dst, of.dst_port)];
                let (one, other) = ((flow.src, flow.src_port), (flow.dst, flow.dst_port));
                flow.protocol == of.protocol && (ports == [one, other] || ports == [other, one])
            }
        }
    }
}

struct Recording {
    /// The number of the rule, and the key of its event.
    owner: (usize, Key),
    rule: String,
    wanted: RecordingScope,
    until_ns: i64,
    /// Bytes that may still be written.
    room: u64,
    /// The name of its file, if that could be made.
    file: Option<String>,
    /// `None` if there is no file, or once it cannot be written: then all packets are lost.
    writer: Option<FileWriter>,
}

/// The request of an event that begins a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordRequest<'a> {
    /// The number of the rule, and the key of its event.
    pub(crate) owner: (usize, Key),
    pub(crate) rule: &'a str,
    pub(crate) time_ns: i64,
    pub(crate) settings: RecordSettings,
    pub(crate) subject: Option<&'a Subject>,
    /// A comment in the file.
    pub(crate) comment: &'a str,
}

/// Recordings that go on, and their account.
pub(crate) struct Recordings {
    directory: PathBuf,
    going_on: Vec<Recording>,
    /// Files begun, by the number of the rule or script.
    files: Vec<u64>,
    /// Recordings that were not begun: too many at a time, or files of the rule.
    refused: u64,
    written: u64,
    /// Packets that did not fit into the size of a file.
    left: u64,
    /// Packets that could not be written, by the number of the rule or script.
    lost: Vec<u64>,
    /// Packets that could not be written, of all rules that there were.
    lost_of_all: u64,
    faults: Faults,
}

impl Recordings {
    pub(crate) fn new(directory: PathBuf, rules: usize) -> Recordings {
        Recordings {
            directory,
            going_on: Vec::new(),
            files: vec![0; rules],
            refused: 0,
            written: 0,
            left: 0,
            lost: vec![0; rules],
            lost_of_all: 0,
            faults: Faults::default(),
        }
    }

    /// Whether a packet may be wanted.
    pub(crate) fn is_recording(&self) -> bool {
        !self.going_on.is_empty()
    }

    /// Recordings, files and packets: refused, begun, written, left out.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [self.refused, self.files.iter().sum(), self.written, self.left]
    }

    /// Faults since the last call, as sentences.
    pub(crate) fn take_faults(&mut self) -> Vec<String> {
        self.faults.take()
    }

    /// Packets that could not be written, of a rule or script.
    pub(crate) fn lost_of(&self, number: usize) -> u64 {
        self.lost.get(number).copied().unwrap_or(0)
    }

    /// Packets that could not be written, of all.
    pub(crate) fn lost(&self) -> u64 {
        self.lost_of_all
    }

    /// Rules and scripts have other numbers: `numbers` gives the new one of an old one. Recordings of those that are
    /// gone go on to their ends.
    pub(crate) fn renumber(&mut self, rules: usize, numbers: &HashMap<usize, usize>) {
        for counts in [&mut self.files, &mut self.lost] {
            let before = std::mem::replace(counts, vec![0; rules]);
            for (old, count) in before.into_iter().enumerate() {
                if let Some(new) = numbers.get(&old).and_then(|new| counts.get_mut(*new)) {
                    *new = count;
                }
            }
        }
        for recording in &mut self.going_on {
            recording.owner.0 = numbers.get(&recording.owner.0).copied().unwrap_or(usize::MAX);
        }
    }

    /// Begins a recording, or has the one of the same rule and key go on for longer. The name of its file.
    pub(crate) fn begin(
        &mut self,
        request: &RecordRequest<'_>,
        past: &Past,
        interfaces: &[Interface],
    ) -> Option<String> {
        let RecordRequest { owner, settings, time_ns, .. } = *request;
        let until_ns = time_ns.saturating_add(settings.after_ns.min(i64::MAX as u64) as i64);
        if let Some(same) = self.going_on.iter_mut().find(|recording| recording.owner == owner) {
            same.until_ns = same.until_ns.max(until_ns);
            return same.file.clone();
        }
        let files = self.files.get_mut(owner.0)?;
        if *files >= settings.files || self.going_on.len() >= RECORDINGS_MAX {
            self.refused += 1;
            return None;
        }
        *files += 1;
        let path = self.directory.join(file_name(request.rule, time_ns, *files));
        let created = create(&path, request, interfaces);
        let writer =
            created.map_err(|fault| self.faults.add(request.rule, Failure::new("begin", fault))).ok();
        let file = writer.as_ref().map(|_| path.display().to_string());
        let (wanted, rule) = (RecordingScope::of(settings.only, request.subject), request.rule.to_owned());
        let mut recording =
            Recording { owner, rule, wanted, until_ns, room: settings.size, file: file.clone(), writer };
        let since_ns = time_ns.saturating_sub(settings.before_ns.min(i64::MAX as u64) as i64);
        for batch in past.parts() {
            let selection = wanted_of(&recording, &batch, interfaces, since_ns);
            self.store(&mut recording, &batch, selection, interfaces);
        }
        self.going_on.push(recording);
        file
    }

    /// Offers a packet to the recordings that go on; those whose time is over are completed first.
    pub(crate) fn push(&mut self, packet: Packet<'_>, interfaces: &[Interface]) {
        self.advance(packet.meta.timestamp.as_nanos());
        let link_type = link_type(interfaces, packet);
        let record =
            [Record { offset: 0, cap_len: packet.data.len() as u32, options_len: 0, meta: *packet.meta }];
        let batch = Batch::new(packet.data, &record);
        let mut going_on = std::mem::take(&mut self.going_on);
        for recording in &mut going_on {
            if recording.wanted.takes(link_type, packet) {
                let mut selection = Selection::none();
                selection.select_all(1);
                self.store(recording, &batch, selection, interfaces);
            }
        }
        self.going_on = going_on;
    }

    /// Handles a clock that was set back: present recordings last as long as before.
    pub(crate) fn set_back(&mut self, step: ClockStep) {
        self.going_on.iter_mut().for_each(|recording| recording.until_ns = step.moved(recording.until_ns));
    }

    /// Completes recordings that are over at `now_ns`.
    pub(crate) fn advance(&mut self, now_ns: i64) {
        let mut at = 0;
        while at < self.going_on.len() {
            if self.going_on[at].until_ns < now_ns {
                let recording = self.going_on.remove(at);
                self.complete(recording);
            } else {
                at += 1;
            }
        }
    }

    /// Completes all.
    pub(crate) fn finish(&mut self) {
        for recording in std::mem::take(&mut self.going_on) {
            self.complete(recording);
        }
    }

    fn store(
        &mut self,
        recording: &mut Recording,
        batch: &Batch<'_>,
        mut selection: Selection,
        interfaces: &[Interface],
    ) {
        let wanted = selection.len();
        let room = &mut recording.room;
        selection.retain(|index| {
            let len = u64::from(batch.records()[index].cap_len);
            let fits = *room >= len;
            *room = if fits { *room - len } else { 0 };
            fits
        });
        self.left += (wanted - selection.len()) as u64;
        let Some(writer) = &mut recording.writer else {
            return self.lose(recording, selection.len() as u64);
        };
        if let Err(error) = writer.write(batch, &selection, interfaces) {
            self.faults.add(&recording.rule, Failure::new("write", error.to_string()));
            self.complete_file(recording);
        }
    }

    fn complete(&mut self, mut recording: Recording) {
        self.complete_file(&mut recording);
    }

    /// Completes the file of a recording, and takes over its counters.
    fn complete_file(&mut self, recording: &mut Recording) {
        let Some(mut writer) = recording.writer.take() else { return };
        if let Err(error) = writer.finish(&[]) {
            self.faults.add(&recording.rule, Failure::new("write", error.to_string()));
        }
        self.written += writer.written();
        self.lose(recording, writer.lost());
    }

    fn lose(&mut self, recording: &Recording, packets: u64) {
        self.lost_of_all += packets;
        self.lost.get_mut(recording.owner.0).into_iter().for_each(|lost| *lost += packets);
    }
}

fn wanted_of(recording: &Recording, batch: &Batch<'_>, interfaces: &[Interface], since_ns: i64) -> Selection {
    let mut selection = Selection::none();
    selection.select_all(batch.len());
    selection.retain(|index| {
        let packet = batch.packet(index);
        packet.meta.timestamp.as_nanos() >= since_ns
            && recording.wanted.takes(link_type(interfaces, packet), packet)
    });
    selection
}

fn link_type(interfaces: &[Interface], packet: Packet<'_>) -> LinkType {
    let interface = interfaces.get(packet.meta.interface.0 as usize);
    interface.map_or(LinkType::ETHERNET, |interface| interface.link_type)
}

/// Name from the rule, the time of its event and a number: `scan-20231114T221320.000000000Z-1.pcapng`.
fn file_name(rule: &str, time_ns: i64, number: u64) -> String {
    let moment = jiff::Timestamp::from_nanosecond(time_ns.into()).unwrap_or_default();
    format!("{rule}-{}-{number}.pcapng", moment.strftime("%Y%m%dT%H%M%S.%9fZ"))
}

fn create(
    path: &std::path::Path,
    request: &RecordRequest<'_>,
    interfaces: &[Interface],
) -> Result<FileWriter, String> {
    let mut options = WriteOptions::new(path, interfaces);
    let writer = concat!("tapline ", env!("CARGO_PKG_VERSION"));
    let mut comment = Vec::new();
    let _ = write!(comment, "{writer}, watch, rule {}: {}", request.rule, request.comment);
    let comment = String::from_utf8_lossy(&comment).into_owned();
    options.section = Section { comments: vec![comment], ..Section::of_this_machine(writer) };
    let now = ClockReading { wall: Timestamp::from_nanos(request.time_ns), steady_ns: 0 };
    FileWriter::create(options, interfaces, now, Box::new(DirectCreator)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use tapline_packet::Meta;

    use super::*;

    const SECOND_NS: i64 = 1_000_000_000;

    /// A missing folder: the past and later packets are lost, which is reported once.
    #[test]
    fn packets_that_cannot_be_written_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut recordings = Recordings::new(folder.path().join("none"), 1);
        let mut past = Past::new(10 * SECOND_NS as u64, 1 << 20);
        let interfaces = [Interface::new("eth0", LinkType::ETHERNET)];
        let metas: Vec<Meta> = (0..5)
            .map(|second| Meta {
                timestamp: Timestamp::from_nanos(second * SECOND_NS),
                wire_len: 60,
                ..Meta::default()
            })
            .collect();
        let packets: Vec<Packet<'_>> = metas.iter().map(|meta| Packet { data: &[0; 60], meta }).collect();
        packets[..3].iter().for_each(|packet| past.push(*packet));
        let only = RecordedPackets::All;
        let before_ns = 10 * SECOND_NS as u64;
        let settings = RecordSettings { before_ns, after_ns: before_ns, only, size: 1000, files: 10 };
        let request = RecordRequest {
            owner: (0, Key::default()),
            rule: "r",
            time_ns: 2 * SECOND_NS,
            settings,
            subject: None,
            comment: "",
        };
        assert_eq!(recordings.begin(&request, &past, &interfaces), None);
        packets[3..].iter().for_each(|packet| recordings.push(*packet, &interfaces));
        assert_eq!(recordings.begin(&request, &past, &interfaces), None, "it goes on");
        recordings.renumber(2, &HashMap::from([(0, 1)]));
        recordings.finish();
        assert_eq!([recordings.lost(), recordings.lost_of(0), recordings.lost_of(1)], [5, 0, 5]);
        assert_eq!(recordings.take_faults().len(), 1);
    }
}
