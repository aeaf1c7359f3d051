//! Programs are about as short as libpcap's optimised ones, and long filters compile in time that grows with their
//! length.

use tapline_bpf::{Insn, code};
use tapline_filter::{Options, compile};
use tapline_testkit::libpcap::{CompileSettings, Libpcap};
use tapline_testkit::stock::COMMON_FILTERS;
use tapline_testkit::volume::processor_time;

fn longest(insns: &[Insn]) -> usize {
    let mut ways = vec![0; insns.len()];
    for (at, insn) in insns.iter().enumerate().rev() {
        let next = |skip: usize| ways[at + 1 + skip];
        ways[at] = 1 + match insn.class() {
            code::RET => 0,
            _ if insn.is_branch() => next(insn.jt.into()).max(next(insn.jf.into())),
            code::JMP => next(insn.k as usize),
            _ => next(0),
        };
    }
    ways[0]
}

#[test]
fn programs_are_about_as_short_as_libpcaps() {
    let pcap = match Libpcap::get() {
        Ok(pcap) => pcap,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    for text in COMMON_FILTERS {
        let oracle = pcap.compile(text, CompileSettings::new(1)).expect(text);
        let ours = compile(text, &Options::default()).expect(text);
        let (ours, longest_ours) = (ours.insns().len(), longest(ours.insns()));
        let (oracle, longest_oracle) = (oracle.insns().len(), longest(oracle.insns()));
        let shown: String = text.chars().take(60).collect();
        eprintln!("{ours:3} ({longest_ours:2}) ours, {oracle:3} ({longest_oracle:2}) libpcap: {shown}");
        // If a chain looks at two fields, one is loaded again: short packets must see the loads in the order of the
        // text.
        assert!(ours <= oracle + 3 && longest_ours <= longest_oracle + 2, "{text}");
    }
}

fn hosts(count: u32) -> String {
    let host = |n: u32| format!("host 10.{}.{}.{}", n >> 16, (n >> 8) & 255, n & 255);
    (1..=count).map(host).collect::<Vec<_>>().join(" or ")
}

#[test]
fn compiling_takes_time_in_proportion() {
    let compiled = |text: String| processor_time(|| compile(&text, &Options::default()).expect("compiles"));
    let ((short, _), (long, program)) = (compiled(hosts(100)), compiled(hosts(1000)));
    eprintln!("100 hosts: {short:?}; 1,000 hosts: {long:?}, {} instructions", program.insns().len());
    // The square of the length would be 100 times.
    assert!(long < 40 * short, "{short:?}, {long:?}");
}
