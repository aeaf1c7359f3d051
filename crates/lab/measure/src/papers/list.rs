//! The sections, in the order of the documents.

use super::section::Section;
use super::{copies, rates, single, slides, winpcap};

const PROFILING: &str = "Profiling and Optimization (Degioanni and others; Zhang and others repeat it)";
const TESTS: &str = "WinPcap's tests of the year 2000";
const SLIDES: &str = "Beyond Device Polling (Deri)";
const FFPF: &str = "FFPF (Bos and others)";

/// Conditions of the profiling paper.
const PENTIUM: &str = "Windows XP, two PCs on Fast Ethernet, 148,809 packets of 64 bytes a second unless a size is given; 3Com 3C996.";
const WINDUMP: &str =
    "Windows 95 to 2000 and FreeBSD 3.3 on Fast Ethernet, WinDump and tcpdump, kernel buffer of 1 MB.";
const FLOOD: &str =
    "175,000, 131,000 and 70,000 packets a second of 64, 512 and 1,500 bytes to a Pentium III of 550 MHz.";

pub(super) const SECTIONS: &[Section] = &[
    Section {
        name: "interrupts",
        document: PROFILING,
        place: "4.2.1, 4.2.2",
        title: "Interrupts by load",
        conditions: PENTIUM,
        change: "NAPI made the card's batching a rule of the kernel: under load packets are polled and an interrupt costs \
                 nothing; at low rates the wake-up of the receiving thread is still most of a packet's cost.",
        measure: rates::interrupts,
    },
    Section {
        name: "filters",
        document: PROFILING,
        place: "Fig. 4, 7",
        title: "Filters of growing complexity, interpreted and native",
        conditions: "3, 21 and 50 instructions, all executed; JIT 3.1 to 5 times faster.",
        change: "Native code is standard in kernels since 2011; batches and wide registers let it gain more than the \
                 paper's factor.",
        measure: single::filters,
    },
    Section {
        name: "copies",
        document: PROFILING,
        place: "Fig. 5, 8",
        title: "Cost of both copies by packet size",
        conditions: "540 to 10,500 cycles for the first copy (300 to 9,600 by memcpy), 259 to 8,550 for the second; \
                     memory of a Pentium's time.",
        change: "Caches hold megabytes and the processor prefetches, so a byte costs a tenth or less; a cold line is still \
                 many times dearer than a warm one, and today's ring is shared, so that there is no second copy.",
        measure: copies::by_size,
    },
    Section {
        name: "tap",
        document: PROFILING,
        place: "4.3.2, 4.3.4, 5.2, 5.4",
        title: "Tap and first copy in the kernel, by packet size",
        conditions: "after the optimisation: tap 560, time stamp 270, first copy 300 (64 bytes) to 9,600 cycles (1,514).",
        change: "The tap costs about what it did, in cycles; the copy no longer grows to many times of it, since it runs \
                 at the speed of caches.",
        measure: rates::tap,
    },
    Section {
        name: "buffer",
        document: PROFILING,
        place: "4.3.2",
        title: "Second copy by size of the kernel's buffer",
        conditions: "in words: the cost grows with the kernel buffer, since less of it is in the cache.",
        change: "The effect is the same one, at buffers a hundred times larger, since caches are.",
        measure: copies::by_buffer,
    },
    Section {
        name: "reads",
        document: PROFILING,
        place: "4.3.3",
        title: "Read calls by rate",
        conditions: "33,500 cycles a read, 256 KB or 3,200 packets each at 100 % load: 10 cycles a packet.",
        change: "A shared ring needs no call to read; a program calls only to sleep, less often the more packets come.",
        measure: rates::reads,
    },
    Section {
        name: "stamps",
        document: PROFILING,
        place: "4.3.4, 5.3",
        title: "Time stamps",
        conditions: "KeQueryPerformanceCounter: 1,800 cycles; rdtsc with two divisions: 270.",
        change: "Kernels read the processor's counter by themselves and scale it by a multiplication: what was the greatest \
                 cost is one of the smallest.",
        measure: single::stamps,
    },
    Section {
        name: "breakdown",
        document: PROFILING,
        place: "Fig. 6, 9",
        title: "Cost of a packet by component, before and after",
        conditions: PENTIUM,
        change: "Time stamp, filter and copies have become small; what is left is the kernel's general path of a packet, \
                 which AF_XDP leaves out where the driver supports zero copy.",
        measure: rates::breakdown,
    },
    Section {
        name: "test1",
        document: TESTS,
        place: "Test 1",
        title: "Filters that match nothing",
        conditions: WINDUMP,
        change: "A filter is a few nanoseconds of native code: the load is that of receiving.",
        measure: winpcap::filters,
    },
    Section {
        name: "test2",
        document: TESTS,
        place: "Test 2",
        title: "Receive and discard, by size and portion",
        conditions: WINDUMP,
        change: "With a shared ring there is no copy to the program, so the portion matters to the kernel's copy alone.",
        measure: winpcap::driver,
    },
    Section {
        name: "test3",
        document: TESTS,
        place: "Test 3",
        title: "To disk",
        conditions: "67,000 packets of 101 bytes a second, 68 bytes of each stored: 73 % on NTFS, 89 % on FAT \
                     (Windows 2000).",
        change: "The page cache takes what a disk cannot; in a flood the processor is the limit, at ten times the rate.",
        measure: winpcap::disk,
    },
    Section {
        name: "buffers",
        document: TESTS,
        place: "1, point 3; discussion",
        title: "Kernel buffer against loss",
        conditions: "in words: 1 MB is standard, a larger buffer loses less.",
        change: "A buffer bridges the time in which a program does not run: megabytes are milliseconds at today's rates, \
                 so the default is tens of them.",
        measure: winpcap::buffers,
    },
    Section {
        name: "filesystems",
        document: TESTS,
        place: "Test 3",
        title: "File systems side by side",
        conditions: "67,000 packets of 101 bytes a second, 68 bytes of each: 73 % on NTFS, 89 % on FAT (Windows 2000).",
        change: "Writing goes to the page cache first, so the file systems differ less than the disks below them.",
        measure: winpcap::file_systems,
    },
    Section {
        name: "share",
        document: SLIDES,
        place: "Packet Capture Evaluation",
        title: "Share captured by size: libpcap, a ring, the driver",
        conditions: FLOOD,
        change: "libpcap uses a shared ring itself since 1.0; over a virtual link, whose driver copies each packet, \
                 AF_XDP gains nothing more. What PF_RING gained then, drivers with zero copy can gain now.",
        measure: slides::share_captured,
    },
    Section {
        name: "polling",
        document: SLIDES,
        place: "Libpcap Performance (Polling)",
        title: "Polling against interrupts",
        conditions: "Linux 2.6.1 with NAPI and libpcap; FreeBSD 4.8 with polling; Pentium III of 550 MHz.",
        change: "NAPI polls by itself under load, so that a flood shows little difference; polling saves the wake-ups \
                 below it, for a whole processor.",
        measure: slides::polling,
    },
    Section {
        name: "processors",
        document: SLIDES,
        place: "PF_RING Spinoffs",
        title: "Load by processor",
        conditions: "dual Xeon of 2.4 GHz, packets of 60 bytes: 650,000 a second, and 1.1 million with one processor that \
                     polls, at 100 %, while three idle.",
        change: "One processor still takes about a million packets a second by the kernel's general path; more processors \
                 share them by queues.",
        measure: slides::processors,
    },
    Section {
        name: "flows",
        document: SLIDES,
        place: "PF_RING and RTIRQ",
        title: "Capture and flows by size",
        conditions: "Linux 2.4.23 with RTIRQ and PF_RING, Pentium 4 of 1.7 GHz; nProbe for flows.",
        change: "Flows cost a fraction of receiving, so that a probe keeps up with the capture.",
        measure: slides::flows,
    },
    Section {
        name: "poll",
        document: SLIDES,
        place: "IRQ and CPU Load",
        title: "A dummy poll()",
        conditions: "more than 1,000 cycles a call, up to ten times as much under load.",
        change: "Instructions for system calls made them cheaper, mitigations of processor faults dearer; under load the call \
                 costs what it costs idle, since processor time is counted.",
        measure: single::poll,
    },
    Section {
        name: "table1",
        document: FFPF,
        place: "Table 1",
        title: "Single operations",
        conditions: "Pentium III of 1.2 GHz, Linux 2.4.",
        change: "Work in the cache is ten times cheaper in cycles; what leaves the processor, a cold store or a wake-up, \
                 is not.",
        measure: single::table_1,
    },
    Section {
        name: "wake",
        document: FFPF,
        place: "5, waking once in N packets",
        title: "Waking the reader once in N packets",
        conditions: "624 cycles a wake-up; once in N packets removes N-1 of N of it.",
        change: "Waking got dearer in cycles, so batching matters more than it did.",
        measure: single::wake,
    },
];
