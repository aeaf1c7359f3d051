//! The memory of native code: never writable and executable at once, freed with its filter, and refused if the system
//! refuses it.

use tapline_filter::{Options, compile};
use tapline_ir::{Ir, Memory};
use tapline_jit::{Error, Native};
use tapline_packet::{Meta, Packet};
use tapline_testkit::own_process::is_alone;
use tapline_testkit::volume::volume;

fn filter(text: &str) -> Ir {
    compile(text, &Options::default()).expect(text).unoptimised_values()
}

/// The lines of `/proc/self/maps`: start, end, access.
fn maps() -> Vec<(usize, usize, String)> {
    let text = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let line = |line: &str| {
        let (range, rest) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two ends");
        let number = |text| usize::from_str_radix(text, 16).expect("a number");
        (number(start), number(end), rest[..4].to_owned())
    };
    text.lines().map(line).collect()
}

#[test]
fn code_is_executable_and_nothing_is_writable_too() {
    let native = Native::compile(&filter("tcp port 80")).expect("native code");
    let at = native.code().as_ptr() as usize;
    let maps = maps();
    let access = maps
        .iter()
        .find(|(start, end, _)| (*start..*end).contains(&at))
        .map(|(_, _, access)| access.as_str());
    assert_eq!(access, Some("r-xp"));
    let both = |access: &str| access.contains('w') && access.contains('x');
    assert!(!maps.iter().any(|(_, _, access)| both(access)), "{maps:?}");
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// The memory of thousands of filters is freed when they go: mappings, and memory but for what allocators keep.
/// `TAPLINE_JIT_FILTERS=10000` for many.
#[test]
fn code_is_freed_with_its_filter() {
    if !is_alone(module_path!(), "code_is_freed_with_its_filter") {
        return;
    }
    let ir = filter("ip");
    let make = |count: usize| (0..count).for_each(|_| drop(Native::compile(&ir).expect("native code")));
    make(200);
    let (maps_before, resident_before) = (maps().len(), resident_kib());
    let count = volume("TAPLINE_JIT_FILTERS", 500).clamp(500, 10_000);
    make(count as usize);
    let (maps_after, resident_after) = (maps().len(), resident_kib());
    eprintln!(
        "{count} filters: {maps_before} then {maps_after} mappings, {resident_before} then {resident_after} KiB"
    );
    assert!(maps_after <= maps_before + 20, "{maps_before} mappings became {maps_after}");
    // Were pages of code kept, they would be 4 KiB each.
    assert!(resident_after < resident_before + count * 2, "{resident_before} KiB became {resident_after}");
}

/// Many at once: the system allows 65,530 mappings, and neighbours with the same access are one.
/// `TAPLINE_JIT_FILTERS=1000` for a thousand.
#[test]
fn many_filters_live_side_by_side() {
    let count = volume("TAPLINE_JIT_FILTERS", 100).min(1000) as usize;
    let texts: Vec<String> = (0..count).map(|port| format!("udp port {port}")).collect();
    let filters: Vec<Native> =
        texts.iter().map(|text| Native::compile(&filter(text)).expect("native code")).collect();
    let mut frame =
        tapline_testkit::gallery::exhibits().into_iter().find(|(name, _)| *name == "udp").expect("a frame").1;
    let memory = Memory::new(0);
    let meta = Meta::default();
    for (port, native) in filters.iter().enumerate() {
        frame[36..38].copy_from_slice(&(port as u16).to_be_bytes());
        let packet = Packet { data: &frame, meta: &meta };
        assert_ne!(native.run(packet, &memory), 0);
        assert_eq!(filters[(port + 1) % count].run(packet, &memory), 0);
    }
}

/// `PR_SET_MDWE` of Linux 6.3: memory that was not executable never becomes so. The setting holds for the whole
/// process.
#[test]
fn refused_memory_is_an_error() {
    if !is_alone(module_path!(), "refused_memory_is_an_error") {
        return;
    }
    let placed = Native::compile(&filter("ip")).expect("memory is not refused yet");
    const ZERO: libc::c_ulong = 0;
    // SAFETY: the call takes numbers only.
    let set = unsafe {
        libc::prctl(libc::PR_SET_MDWE, libc::c_ulong::from(libc::PR_MDWE_REFUSE_EXEC_GAIN), ZERO, ZERO, ZERO)
    };
    if set != 0 {
        return eprintln!("skipped: this kernel has no PR_SET_MDWE: {}", std::io::Error::last_os_error());
    }
    let error = Native::compile(&filter("ip")).expect_err("no executable memory");
    assert!(matches!(error, Error::Memory(_)), "{error}");
    assert!(error.to_string().contains("the interpreter runs the filter"), "{error}");
    eprintln!("{error}");
    // The code for single packets is made when the first comes: too late for native code here.
    let verdicts = [0x08, 0x86].map(|first| {
        let mut frame = [0; 60];
        frame[12] = first;
        let meta = Meta { wire_len: 60, ..Meta::default() };
        placed.run(Packet { data: &frame, meta: &meta }, &Memory::new(0))
    });
    assert_eq!(verdicts, [262_144, 0]);
}

#[test]
fn unproved_graphs_are_refused() {
    use tapline_ir::{Builder, ByteOrder, Op, PacketOffset, Terminator, Type, Width};
    let mut builder = Builder::new();
    let entry = builder.block();
    builder.switch_to(entry);
    let loaded = builder.push(Op::Load(PacketOffset::at(0), Width::Byte, ByteOrder::Big), Type::U32);
    builder.finish(Terminator::Return(loaded));
    assert!(matches!(Native::compile(&builder.build(entry)), Err(Error::Unsafe(_))));
}

#[test]
fn large_graphs_are_refused() {
    let mut ir = Ir::constant(1);
    (0..=tapline_jit::VALUES_MAX).for_each(|_| {
        ir.add(tapline_ir::Op::Const(0), tapline_ir::Type::U32);
    });
    assert!(matches!(Native::compile(&ir), Err(Error::TooLarge { .. })));
}

/// The bytes that are printed of an entry.
fn printed(text: &str, entry: &str) -> Vec<u8> {
    let head = format!("{entry}: ");
    let lines = text.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    let lines = lines.take_while(|line| !line.starts_with("select: "));
    let rows = lines.filter_map(|line| line.strip_prefix("bytes:"));
    rows.flat_map(str::split_whitespace)
        .map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"))
        .collect()
}

/// The code that `explain` prints is the code that is called.
#[test]
fn printed_code_is_the_code_that_runs() {
    let ports = (0..40).map(|n| format!("port {}", 7 * n)).collect::<Vec<_>>().join(" or ");
    for text in ["ip", "tcp port 80 or udp port 53", "vlan and host 10.0.0.1", &ports] {
        let native = Native::of(&compile(text, &Options::default()).expect(text)).expect("native code");
        let meta = Meta { wire_len: 60, ..Meta::default() };
        native.run(Packet { data: &[0; 60], meta: &meta }, &Memory::new(0));
        let shown = native.assembly().expect("a listing");
        assert!(shown.contains("ret"), "{shown}");
        assert_eq!(printed(&shown, "run"), native.packet_code().expect("memory for code"), "{text}\n{shown}");
        assert_eq!(printed(&shown, "select"), native.code(), "{text}\n{shown}");
    }
}
