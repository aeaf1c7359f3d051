use std::os::fd::{AsFd, AsRawFd};

use tapline_bpf::ebpf::{Insn, R0, R2, R3, helper, xdp_action};

use super::*;

/// Whether this process may load; says so if not.
fn may_load(test: &str, kind: ProgramKind) -> bool {
    probe(kind).map_err(|error| eprintln!("skipped: {test}: {error}")).is_ok()
}

#[test]
fn a_program_runs_and_tells_of_itself() {
    if !may_load("a_program_runs_and_tells_of_itself", ProgramKind::SocketFilter) {
        return;
    }
    let program =
        LoadedProgram::load(ProgramKind::SocketFilter, "tapline test", &[Insn::set(R0, 77), Insn::EXIT])
            .unwrap();
    let run = program.test_run(&[0; 60], 10).unwrap();
    assert_eq!(run.value, 77);
    let info = program.info().unwrap();
    assert_eq!(info.name, "tapline_test");
    assert!(info.id > 0 && info.tag != 0);
}

#[test]
fn the_verifier_says_why_it_refuses() {
    if !may_load("the_verifier_says_why_it_refuses", ProgramKind::Xdp) {
        return;
    }
    // r0 = r3, which nothing has set.
    let unset = Insn::copy(R0, R3);
    let error = LoadedProgram::load(ProgramKind::Xdp, "bad", &[unset, Insn::EXIT]).unwrap_err();
    assert!(error.log.contains("R3 !read_ok"), "{}", error.log);
    assert_eq!(error.reason(), Some("R3 !read_ok"));
    assert!(error.to_string().ends_with("; the verifier: R3 !read_ok"), "{error}");
    assert!(!error.is_too_large());
    let none = LoadedProgram::load(ProgramKind::Xdp, "empty", &[]).unwrap_err();
    assert!(none.is_too_large(), "E2BIG is also what no instruction at all gets");
}

#[test]
fn rights_are_named_when_they_are_missing() {
    let refused = std::thread::spawn(|| {
        crate::capability::keep_only(&[]).unwrap();
        (probe(ProgramKind::Xdp), unprivileged())
    });
    let (refused, unprivileged) = refused.join().unwrap();
    let error = refused.expect_err("XDP is never for everyone");
    assert_eq!((error.errno(), error.log.as_str()), (libc::EPERM, ""));
    assert!(error.to_string().contains("CAP_BPF and CAP_NET_ADMIN and CAP_PERFMON"), "{error}");
    let is_said = error.to_string().contains("unprivileged_bpf_disabled");
    assert_eq!(is_said, matches!(unprivileged, Unprivileged::Forbidden | Unprivileged::ForbiddenForNow));
}

#[test]
fn names_are_cut_to_the_kernels_rules() {
    assert_eq!(&object_name("udp port 53 and more"), b"udp_port_53_and\0");
    assert_eq!(&object_name("")[..1], b"\0");
}

#[test]
fn links_end_with_their_owner_and_spare_others() {
    if !may_load("links_end_with_their_owner_and_spare_others", ProgramKind::Xdp) {
        return;
    }
    let pass = LoadedProgram::load(ProgramKind::Xdp, "pass", &[Insn::set(R0, xdp_action::PASS), Insn::EXIT])
        .unwrap();
    let other = LoadedProgram::load(ProgramKind::Xdp, "drop", &[Insn::set(R0, xdp_action::DROP), Insn::EXIT])
        .unwrap();
    let attach = move || {
        // A namespace of this thread's own, in which the loopback interface is number 1.
        // SAFETY: unshare(2) has no memory conditions; the thread ends with this test.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return eprintln!("skipped: no right to make a namespace");
        }
        let link = XdpLink::attach(&pass, 1, XdpMode::Generic).unwrap();
        let busy = XdpLink::attach(&other, 1, XdpMode::Generic).unwrap_err();
        assert!(matches!(busy.errno(), libc::EBUSY | libc::EEXIST), "{busy}");
        link.replace(&other).unwrap();
        drop(link);
        XdpLink::attach(&other, 1, XdpMode::Generic).expect("nothing is there any more");
        assert_eq!(XdpLink::attach(&other, 99, XdpMode::Any).unwrap_err().errno(), libc::EINVAL);
    };
    std::thread::spawn(attach).join().unwrap();
}

#[test]
fn statistics_count_runs() {
    let Ok(_on) = RunTimeStatistics::enable() else {
        return eprintln!("skipped: statistics need CAP_SYS_ADMIN");
    };
    let program =
        LoadedProgram::load(ProgramKind::SocketFilter, "count", &[Insn::set(R0, 1), Insn::EXIT]).unwrap();
    program.test_run(&[0; 60], 3).unwrap();
    assert_eq!(program.info().unwrap().runs, 3);
}

#[test]
fn programs_call_each_other_by_number() {
    if !may_load("programs_call_each_other_by_number", ProgramKind::SocketFilter) {
        return;
    }
    let map = Map::create(MapKind::Programs, "calls", 1).unwrap();
    let callee =
        LoadedProgram::load(ProgramKind::SocketFilter, "callee", &[Insn::set(R0, 5), Insn::EXIT]).unwrap();
    let mut caller = Insn::set_map(R2, map.as_fd().as_raw_fd()).to_vec();
    caller.extend([Insn::set(R3, 0), Insn::call(helper::TAIL_CALL), Insn::set(R0, 9), Insn::EXIT]);
    let caller = LoadedProgram::load(ProgramKind::SocketFilter, "caller", &caller).unwrap();
    let run = || caller.test_run(&[0; 60], 1).unwrap().value;
    assert_eq!(run(), 9);
    map.set(0, callee.as_fd()).unwrap();
    assert_eq!(run(), 5);
    map.remove(0).unwrap();
    assert_eq!(run(), 9);
    assert!(map.set(1, callee.as_fd()).is_err());
}
