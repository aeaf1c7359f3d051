//! The union of the filters of all readers of a capture, as one program for the kernel: other packets are not even
//! copied.
//!
//! ```text
//! first reader    accepts -> ret #all      refuses -> next
//! ...
//! last reader     accepts -> ret #all      refuses -> ret #0
//!
//! a reader        the capture's own filter and what is forced upon it, then what it asked for
//! ```
//!
//! Only where that is exact: the kernel must accept all that a reader's filter accepts here. So no program may ask for
//! what does not come along with the packet (the processor, a random number), none may read a scratch cell that another
//! one wrote, and all is kept of what anybody accepts.
//!
//! Slow work, such as compiling, is done when a reader asks, by the thread that answers. The capture's own thread only
//! puts programs behind each other.

use tapline_bpf::{Insn, Program, ancillary, code};
use tapline_filter::Options;

/// The longest union that is given to the kernel. An unwanted packet passes through all of it, which must cost less
/// than to copy the packet.
const INSNS_MAX: usize = 512;
/// Offsets from here on are special (`SKF_AD_OFF` and others): they do not address bytes of the packet.
const OFFSETS: u32 = 1 << 31;
/// The bits of a load's code for its addressing mode.
const MODE: u16 = 0xe0;
/// And how many bytes.
const SIZE: u16 = 0x18;
/// Metadata that the kernel passes on with a packet.
const KNOWN: [u32; 4] =
    [ancillary::PKTTYPE, ancillary::VLAN_TAG, ancillary::VLAN_TAG_PRESENT, ancillary::VLAN_TPID];

/// A reader's filter, as the kernel could run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FilterNeed {
    /// All that is captured.
    All,
    /// The packets that this program accepts, exactly.
    Only(Program),
    /// The kernel could not say it, or only at length.
    Unsaid,
}

impl FilterNeed {
    /// An expression, within the capture's own filter.
    pub(crate) fn text(capture: &str, text: &str, options: &Options) -> FilterNeed {
        if text.trim().is_empty() {
            return FilterNeed::All;
        }
        let mut chain = Chain::default();
        let added = compiled(capture, text, options).and_then(|program| chain.add(&program, Exit::Accept));
        added.and_then(|()| chain.finish()).map_or(FilterNeed::Unsaid, FilterNeed::Only)
    }

    /// A program, within the capture's own filter and an expression that is forced upon it. Those two see whole
    /// packets; the program sees `snap_len` bytes of each.
    pub(crate) fn program(
        capture: &str,
        forced: &str,
        own: &Program,
        snap_len: u32,
        options: &Options,
    ) -> FilterNeed {
        let both = || {
            let own = &if snap_len < options.snap_len { cut(own, snap_len)? } else { own.clone() };
            let mut chain = Chain::default();
            let within = compiled(capture, forced, options)?;
            let accepts_all = matches!(within.insns(), [only] if only.k > 0);
            if !accepts_all {
                chain.add(&within, Exit::Behind)?;
            }
            chain.add(own, Exit::Accept)?;
            chain.finish()
        };
        both().map_or(FilterNeed::Unsaid, FilterNeed::Only)
    }
}

/// Where a program goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// Behind this program.
    Behind,
    /// With the next reader.
    Next,
    /// To the end: all of the packet is kept.
    Accept,
}

/// A program under construction.
#[derive(Default)]
struct Chain {
    insns: Vec<Insn>,
    /// Jumps without a target yet.
    open: Vec<(usize, Exit)>,
}

/// The program that accepts a packet if any of them does; `None` if it is impossible, not worth it, or all packets are
/// wanted.
pub(crate) fn of<'a>(readers: impl Iterator<Item = &'a FilterNeed>) -> Option<Program> {
    let mut programs: Vec<&Program> = Vec::new();
    for asked in readers {
        match asked {
            FilterNeed::Only(program) if programs.contains(&program) => {}
            FilterNeed::Only(program) => programs.push(program),
            FilterNeed::All | FilterNeed::Unsaid => return None,
        }
    }
    if let [only] = programs.as_slice() {
        return Some((*only).clone());
    }
    let mut chain = Chain::default();
    for program in programs {
        chain.add(program, Exit::Accept)?;
        chain.close(Exit::Next);
    }
    chain.finish()
}

/// Both, compiled.
fn compiled(capture: &str, text: &str, options: &Options) -> Option<Program> {
    let both = match (capture.trim(), text.trim()) {
        ("", one) | (one, "") => one.to_owned(),
        (capture, text) => format!("({capture}) and ({text})"),
    };
    tapline_filter::compile_or_reject(&both, options).ok().map(|filter| filter.program().clone())
}

/// The program that says of whole packets what this one says of packets of at most `snap_len` bytes: a load beyond them
/// refuses the packet. `None` if it becomes too long for its jumps.
fn cut(program: &Program, snap_len: u32) -> Option<Program> {
    let refuse = Insn::new(code::RET | code::K, 0);
    let mut insns = Vec::new();
    // Where each instruction went to, as jumps find it.
    let mut places = Vec::new();
    for insn in program.insns() {
        places.push(insns.len());
        let is_load = matches!(insn.class(), code::LD | code::LDX);
        let len = match insn.code & SIZE {
            code::B => 1,
            code::H => 2,
            _ => 4,
        };
        // How far the load may begin; none if it is beyond the packet however it begins.
        let last = snap_len.checked_sub(len).and_then(|last| last.checked_sub(insn.k));
        match insn.code & MODE {
            code::ABS | code::MSH if is_load && insn.k < OFFSETS && last.is_none() => insns.push(refuse),
            code::IND if is_load => match last {
                Some(last) => {
                    // A is loaded anyway.
                    insns.push(Insn::new(code::MISC | code::TXA, 0));
                    insns.push(Insn::jump(code::JMP | code::JGT | code::K, last, 0, 1));
                    insns.extend([refuse, *insn]);
                }
                None => insns.push(refuse),
            },
            _ => insns.push(*insn),
        }
    }
    for (at, insn) in program.insns().iter().enumerate().filter(|(_, insn)| insn.class() == code::JMP) {
        // A jump itself was not made longer.
        let here = places[at];
        let distance = |skip: u32| places.get(at + 1 + skip as usize).map(|target| target - here - 1);
        if insn.is_branch() {
            insns[here].jt = u8::try_from(distance(insn.jt.into())?).ok()?;
            insns[here].jf = u8::try_from(distance(insn.jf.into())?).ok()?;
        } else {
            insns[here].k = u32::try_from(distance(insn.k)?).ok()?;
        }
    }
    Program::new(insns).ok()
}

/// Whether the kernel's verdict is ours.
fn is_exact(program: &Program) -> bool {
    let is_known = |insn: &Insn| {
        let reads_packet = matches!(insn.class(), code::LD | code::LDX)
            && matches!(insn.code & MODE, code::ABS | code::IND | code::MSH);
        !reads_packet || insn.k < OFFSETS || KNOWN.contains(&insn.k)
    };
    program.check_for_kernel().is_ok() && program.insns().iter().all(is_known)
}

impl Chain {
    /// Adds a program that jumps to `accepted` with its return value, and to the next reader if it accepts nothing.
    fn add(&mut self, program: &Program, accepted: Exit) -> Option<()> {
        if !is_exact(program) || self.insns.len() + program.insns().len() > INSNS_MAX {
            return None;
        }
        if !self.insns.is_empty() {
            // Each begins with empty registers.
            self.insns.push(Insn::new(code::LD | code::W | code::IMM, 0));
            self.insns.push(Insn::new(code::LDX | code::W | code::IMM, 0));
        }
        let mut by_value = Vec::new();
        for insn in program.insns() {
            let at = self.insns.len();
            self.insns.push(match (insn.class() == code::RET, insn.code == code::RET | code::K) {
                (false, _) => *insn,
                (true, true) => {
                    self.open.push((at, if insn.k == 0 { Exit::Next } else { accepted }));
                    jump()
                }
                (true, false) => {
                    by_value.push(at);
                    jump()
                }
            });
        }
        // `ret a` becomes a jump to a look at A.
        for at in by_value {
            self.insns[at].k = (self.insns.len() - at - 1) as u32;
            let look = self.insns.len();
            self.insns.push(Insn::jump(code::JMP | code::JEQ | code::K, 0, 0, 1));
            self.insns.extend([jump(), jump()]);
            self.open.extend([(look + 1, Exit::Next), (look + 2, accepted)]);
        }
        self.close(Exit::Behind);
        Some(())
    }

    /// Jumps that were to go here do.
    fn close(&mut self, exit: Exit) {
        let here = self.insns.len();
        let insns = &mut self.insns;
        self.open.retain(|&(at, to)| {
            if to == exit {
                insns[at].k = (here - at - 1) as u32;
            }
            to != exit
        });
    }

    fn finish(mut self) -> Option<Program> {
        self.close(Exit::Next);
        self.insns.push(Insn::new(code::RET | code::K, 0));
        if !self.open.is_empty() {
            self.close(Exit::Accept);
            self.insns.push(Insn::new(code::RET | code::K, u32::MAX));
        }
        Program::new(self.insns).ok()
    }
}

/// To where is seen later.
fn jump() -> Insn {
    Insn::new(code::JMP | code::JA, 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tapline_filter::HandleKind;
    use tapline_packet::{Meta, Packet, PacketType, VlanTag};

    use super::*;

    fn options() -> Options {
        Options { handle: HandleKind::Live, ..Options::default() }
    }

    fn text(text: &str) -> FilterNeed {
        FilterNeed::text("", text, &options())
    }

    fn program(text: &str) -> Program {
        tapline_filter::compile(text, &options()).unwrap().program().clone()
    }

    fn own(own: &Program) -> FilterNeed {
        FilterNeed::program("", "", own, u32::MAX, &options())
    }

    const TEXTS: [&str; 8] = [
        "udp port 53",
        "tcp[13] & 2 != 0",
        "vlan and ip",
        "ip6",
        "not ip",
        "len > 200",
        "inbound",
        "portrange 1-1000 or icmp",
    ];

    /// Whether all of these programs accept a packet.
    fn accept(programs: &[Program], packet: Packet<'_>) -> bool {
        programs.iter().all(|program| program.run(packet) != 0)
    }

    /// Programs of the texts that are not empty.
    fn programs(texts: &[&str]) -> Vec<Program> {
        texts.iter().filter(|text| !text.is_empty()).map(|text| program(text)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// The union accepts the packets that one of the programs accepts, and no others.
        #[test]
        fn the_union_is_exact(
            chosen in prop::collection::vec((0..TEXTS.len(), any::<bool>(), 0..3_usize), 0..5),
            capture in prop::sample::select(vec!["", "ip or ip6", "udp"]),
            seed in 0..1000_u64,
        ) {
            // What each asks for, and what is forced upon it.
            let wishes: Vec<(&str, &str)> = chosen
                .iter()
                .map(|&(at, is_text, forced)| (TEXTS[at], if is_text { "" } else { ["", "udp", "not udp"][forced] }))
                .collect();
            let readers = wishes.iter().zip(&chosen).map(|(&(own, forced), (_, is_text, _))| match is_text {
                true => FilterNeed::text(capture, own, &options()),
                false => FilterNeed::program(capture, forced, &program(own), u32::MAX, &options()),
            });
            let readers: Vec<FilterNeed> = readers.collect();
            let union = of(readers.iter()).unwrap();
            union.check_for_kernel().unwrap();
            let of_capture = programs(&[capture]);
            let of_wishes: Vec<Vec<Program>> = wishes.iter().map(|(own, forced)| programs(&[own, forced])).collect();
            for (n, (_, frame)) in tapline_testkit::traffic::Traffic::new(seed).take(50).enumerate() {
                let vlan = (n % 3 == 0).then_some(VlanTag { tpid: 0x8100, tci: 5 });
                let packet_type = [PacketType::Host, PacketType::Outgoing][n % 2];
                let meta = Meta { vlan, packet_type, wire_len: frame.len() as u32, ..Meta::default() };
                let packet = Packet { data: &frame, meta: &meta };
                let is_wanted = of_wishes.iter().any(|programs| accept(programs, packet));
                let expected = accept(&of_capture, packet) && is_wanted;
                prop_assert_eq!(union.run(packet) != 0, expected, "{:?} {:?}", wishes, frame);
            }
        }
    }

    /// A program that was rewritten for cut packets returns for whole packets the original's result for cut ones.
    #[test]
    fn programs_for_cut_packets_see_only_the_cut() {
        const TEXTS: [&str; 9] = [
            "",
            "udp[20:4] & 1 != 0",
            "tcp[2:2] > 1000 or udp[8] & 1 = 0",
            "ip6 or not (tcp[tcp[12] >> 2] & 3 = 1)",
            "link[14 + (link[14] & 15) * 4 : 2] != 7",
            "len > 200",
            "vlan and ip",
            "icmp[icmptype] = icmp-echo or ip[60] != 0",
            "not ip or link[100] = 0",
        ];
        let mut differ = 0;
        for text in TEXTS {
            let whole = program(text);
            for snap_len in [1, 14, 20, 34, 41, 42, 60, 96, 1500] {
                let short = cut(&whole, snap_len).unwrap();
                for (n, (_, frame)) in tapline_testkit::traffic::Traffic::new(7).take(400).enumerate() {
                    let vlan = (n % 3 == 0).then_some(VlanTag { tpid: 0x8100, tci: 5 });
                    let meta = Meta { vlan, wire_len: frame.len() as u32, ..Meta::default() };
                    let seen = &frame[..frame.len().min(snap_len as usize)];
                    let expected = whole.run(Packet { data: seen, meta: &meta });
                    let packet = Packet { data: &frame, meta: &meta };
                    assert_eq!(short.run(packet), expected, "{text} cut to {snap_len}: {frame:?}");
                    differ += usize::from(whole.run(packet) != expected);
                }
            }
        }
        assert!(differ > 1000, "the cut matters: {differ}");
    }

    /// An offset that an index register makes, up to the ones where the kernel keeps metadata.
    #[test]
    fn a_computed_offset_is_held_within_the_cut() {
        let at = |x, k| {
            let insns = vec![
                Insn::new(code::LDX | code::W | code::IMM, x),
                Insn::new(code::LD | code::H | code::IND, k),
                Insn::new(code::RET | code::K, 7),
            ];
            cut(&Program::new(insns).unwrap(), 60).unwrap()
        };
        let meta = Meta::default();
        for (x, k, expected) in
            [(0, 58, 7), (0, 59, 0), (58, 0, 7), (59, 0, 0), (u32::MAX, 30, 0), (OFFSETS, 0, 0), (2, 57, 0)]
        {
            assert_eq!(at(x, k).run(Packet { data: &[1; 100], meta: &meta }), expected, "{x} {k}");
        }
    }

    #[test]
    fn programs_that_return_a_full_accumulator() {
        let by_value = Program::new(vec![
            Insn::new(code::LD | code::B | code::ABS, 0),
            Insn::new(code::RET | code::A, 0),
        ])
        .unwrap();
        // Accepts only if A and X are 0 at its start.
        let fresh = Program::new(vec![
            Insn::new(code::ALU | code::ADD | code::X, 0),
            Insn::jump(code::JMP | code::JEQ | code::K, 0, 0, 1),
            Insn::new(code::RET | code::K, 1),
            Insn::new(code::RET | code::K, 0),
        ])
        .unwrap();
        let filled = own(&program("ip6"));
        let meta = Meta::default();
        for (readers, data, expected) in [
            (vec![own(&by_value)], [0_u8; 20], false),
            (vec![own(&by_value)], [1; 20], true),
            (vec![own(&by_value), own(&fresh)], [0; 20], true),
            (vec![filled, own(&fresh)], [0; 20], true),
            (vec![own(&by_value), own(&by_value)], [0; 20], false),
        ] {
            let union = of(readers.iter()).unwrap();
            assert_eq!(union.run(Packet { data: &data, meta: &meta }) != 0, expected);
            // All of the packet is kept.
            assert_eq!(union.insns().last(), Some(&Insn::new(code::RET | code::K, u32::MAX)));
        }
    }

    #[test]
    fn only_what_is_exact_and_short() {
        assert_eq!(of([text("ip"), text("")].iter()), None);
        let nothing = of([].iter()).unwrap();
        assert_eq!(nothing.run(Packet { data: &[0; 60], meta: &Meta::default() }), 0);
        assert_eq!(text("host 10.0.0.1"), FilterNeed::text(" ", "host 10.0.0.1", &options()));
        let by = |first| Program::new(vec![first, Insn::new(code::RET | code::A, 0)]).unwrap();
        let random = by(Insn::new(code::LD | code::W | code::ABS, ancillary::RANDOM));
        let unset = by(Insn::new(code::LD | code::W | code::MEM, 3));
        for unsaid in [own(&random), own(&unset)] {
            assert_eq!(unsaid, FilterNeed::Unsaid);
            assert_eq!(of([text("ip"), unsaid].iter()), None);
        }
        let many: Vec<FilterNeed> = (0..200).map(|n| text(&format!("host 10.0.0.{n}"))).collect();
        assert_eq!(of(many.iter()), None);
        let same: Vec<FilterNeed> = (0..200).map(|_| text("host 10.0.0.1")).collect();
        assert!(of(same.iter()).unwrap().insns().len() < 60);
    }
}
