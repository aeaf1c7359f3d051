//! Rates of sending: sendmmsg against the transmit ring, with and without `PACKET_QDISC_BYPASS`, and live frames,
//! interleaved.
//!
//! ```text
//! ip netns add x; ip -n x link add a type veth peer name b; (both up; live frames need GRO on at b)
//! ip netns exec x transmit_rates a b [FRAME_BYTES] [FRAMES] [ROUNDS]
//! ```
//!
//! For each way: processor time of the sending thread for each frame (median of the rounds; on a veth the receiver's
//! interrupt is part of it), frames a second, and the count of the other end. Then whether frames arrive as they were
//! sent: each frame is filled with one byte, which also ends its source address, and a socket at the other end that
//! is slow to read compares the two.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tapline_sys::usage::thread_time;
use tapline_sys::xsk::{XdpSocket, XskSettings};
use tapline_sys::{FRAMES_PER_CALL, FrameSocket, LiveFrames, PacketSocket, RouteSocket};

/// Slots of the ring, each of 2 KiB.
const SLOTS: usize = 512;
const SLOT_LEN: usize = 2048;
/// The start of the frame behind a `tpacket2_hdr` of 32 bytes: `TPACKET2_HDRLEN - sizeof(struct sockaddr_ll)`.
const DATA_AT: usize = 32;

/// The ways to send that are compared.
const WAYS: [&str; 9] = [
    "sendmmsg",
    "sendmmsg, bypass",
    "ring",
    "ring, bypass",
    "live, 64 a run",
    "live, 256 a run",
    "live, 1024 a run",
    "live, 4096 a run",
    "AF_XDP",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, rest @ ..] = arguments.as_slice() else { return Err("two interfaces are needed".into()) };
    let number = |at: usize, default: usize| rest.get(at).map_or(Ok(default), |text| text.parse());
    let (len, count, rounds) = (number(0, 60)?, number(1, 500_000)?, number(2, 7)?);
    let links = RouteSocket::open()?.links()?;
    let index = |name: &str| links.iter().find(|link| link.name == name).map(|link| link.index);
    let (from, to) = (index(from).ok_or("no such interface")?, index(to).ok_or("no such interface")?);
    let received = |route: &mut RouteSocket| -> Result<u64, Box<dyn std::error::Error>> {
        Ok(route.link(to)?.and_then(|link| link.statistics).map_or(0, |counters| counters.rx_packets))
    };
    let mut route = RouteSocket::open()?;
    let mut speeds = vec![Vec::new(); WAYS.len()];
    let mut rates = vec![Vec::new(); WAYS.len()];
    let mut arrived = vec![0; WAYS.len()];
    for _ in 0..rounds {
        for way in 0..WAYS.len() {
            let before = received(&mut route)?;
            let (start, clock) = (thread_time(), Instant::now());
            send(way, from, len, count)?;
            speeds[way].push(count as f64 / clock.elapsed().as_secs_f64());
            rates[way].push((thread_time() - start).as_nanos() as f64 / count as f64);
            std::thread::sleep(Duration::from_millis(100));
            arrived[way] += received(&mut route)? - before;
        }
    }
    print_medians(&mut rates, &mut speeds, &arrived, rounds * count);
    for (way, name) in WAYS.iter().enumerate() {
        let mixed = watch(to, || match way {
            0 | 1 => by_calls(from, way == 1, 1000, 100_000),
            8 => by_xdp_socket(from, 1000, 100_000),
            4.. => by_live_frames(from, 256, 1000, 100_000),
            _ => by_ring(from, way == 3, 1000, 100_000),
        })?;
        println!("{name:18} {} frames seen, {} of them not as they were sent", mixed.0, mixed.1);
    }
    Ok(())
}

/// Sends `count` frames in one of the [`WAYS`].
fn send(way: usize, from: u32, len: usize, count: usize) -> io::Result<()> {
    match way {
        0 | 1 => by_calls(from, way == 1, len, count),
        2 | 3 => by_ring(from, way == 3, len, count),
        8 => by_xdp_socket(from, len, count),
        _ => by_live_frames(from, 64 << (2 * (way - 4)), len, count),
    }
}

/// Prints the median of each of the [`WAYS`]; `all` frames were sent in each.
fn print_medians(rates: &mut [Vec<f64>], speeds: &mut [Vec<f64>], arrived: &[u64], all: usize) {
    for (way, name) in WAYS.iter().enumerate() {
        rates[way].sort_by(f64::total_cmp);
        speeds[way].sort_by(f64::total_cmp);
        let (rate, speed) = (rates[way][rates[way].len() / 2], speeds[way][speeds[way].len() / 2]);
        println!(
            "{name:18} {rate:>7.0} ns a frame {speed:>10.0} frames/s   {} of {all} arrived",
            arrived[way]
        );
    }
}

/// Frame number `n`: every byte behind the addresses is the last one of the addresses.
fn fill(frame: &mut [u8], n: usize) {
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[11] = n as u8;
    frame[14..].fill(n as u8);
}

fn by_calls(if_index: u32, bypass: bool, len: usize, count: usize) -> io::Result<()> {
    let other = |error: tapline_sys::SyscallError| error.source;
    let mut socket = FrameSocket::open(if_index).map_err(other)?;
    socket.set_qdisc_bypass(bypass).map_err(other)?;
    let mut frames = vec![vec![0; len]; FRAMES_PER_CALL];
    let mut sent = 0;
    while sent < count {
        for (n, frame) in frames.iter_mut().enumerate() {
            fill(frame, sent + n);
        }
        let mut at = 0;
        let end = FRAMES_PER_CALL.min(count - sent);
        while at < end {
            match socket.send(frames[at..end].iter().map(|frame| [frame.as_slice(), &[], &[]])) {
                Ok(taken) => at += taken,
                Err(error) if matches!(error.errno(), libc::ENOBUFS | libc::EAGAIN) => {
                    std::thread::yield_now()
                }
                Err(error) => return Err(error.source),
            }
        }
        sent += end;
    }
    Ok(())
}

fn by_live_frames(if_index: u32, a_run: usize, len: usize, count: usize) -> io::Result<()> {
    let mut live = LiveFrames::open(if_index, 1518).map_err(io::Error::other)?;
    let mut frames = vec![vec![0; len]; a_run];
    let mut sent = 0;
    while sent < count {
        for (n, frame) in frames.iter_mut().enumerate() {
            fill(frame, sent + n);
        }
        let mut at = 0;
        let end = a_run.min(count - sent);
        while at < end {
            match live.send(frames[at..end].iter().map(|frame| [frame.as_slice(), &[], &[]])) {
                Ok(taken) => at += taken,
                Err(error) if error.errno() == libc::ENOBUFS => std::thread::yield_now(),
                Err(error) => return Err(error.source),
            }
        }
        sent += end;
    }
    Ok(())
}

fn by_xdp_socket(if_index: u32, len: usize, count: usize) -> io::Result<()> {
    let other = |error: tapline_sys::SyscallError| error.source;
    let settings = XskSettings {
        chunk_len: 2048,
        chunks: 4096,
        fill_len: 64,
        completion_len: 4096,
        rx_len: 0,
        tx_len: 2048,
        huge_pages: true,
    };
    let mut socket = XdpSocket::open(&settings).map_err(other)?;
    for _ in 0..100 {
        match socket.bind(if_index, 0, false) {
            Ok(_) => break,
            Err(error) if error.errno() == libc::EBUSY => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => return Err(error.source),
        }
    }
    let mut sent = 0;
    while sent < count {
        let end = FRAMES_PER_CALL.min(count - sent);
        for n in 0..end {
            let chunk = loop {
                match socket.take_chunk() {
                    Some(chunk) => break chunk,
                    None => _ = socket.complete(),
                }
            };
            fill(&mut socket.chunk_mut(chunk)[..len], sent + n);
            while !socket.transmit(chunk, 0, len as u32, false) {
                socket.flush().map_err(other)?;
            }
        }
        while !socket.flush().map_err(other)? {}
        socket.complete();
        sent += end;
    }
    while socket.transmits_pending() > 0 {
        socket.flush().map_err(other)?;
    }
    Ok(())
}

/// A transmit ring of TPACKET_V2, which has the same layout in each slot whatever the frame's length.
struct TxRing {
    fd: OwnedFd,
    base: *mut u8,
}

impl TxRing {
    fn open(if_index: u32, bypass: bool) -> io::Result<TxRing> {
        // SAFETY: socket(2) takes integers only.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and no other value owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        set(&fd, libc::PACKET_VERSION, &version)?;
        set(&fd, libc::PACKET_QDISC_BYPASS, &libc::c_int::from(bypass))?;
        let request = libc::tpacket_req {
            tp_block_size: (SLOTS * SLOT_LEN) as u32,
            tp_block_nr: 1,
            tp_frame_size: SLOT_LEN as u32,
            tp_frame_nr: SLOTS as u32,
        };
        set(&fd, libc::PACKET_TX_RING, &request)?;
        let (len, both) = (SLOTS * SLOT_LEN, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: no address is asked for, so no existing mapping is replaced; the kernel checks descriptor and length.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, both, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = if_index as libc::c_int;
        let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: pointer and size describe `address`, which lives through the call.
        match unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(&address).cast(), size) } {
            0 => Ok(TxRing { fd, base: base.cast() }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn status(&self, slot: usize) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: the slot lies in the mapping, aligned to 2 KiB, and begins with tp_status; both sides access it as a
        // whole word.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.base.add(slot * SLOT_LEN).cast()) }
    }

    /// Makes the kernel send the marked frames, and waits for the queue where it must.
    fn kick(&self) -> io::Result<()> {
        // SAFETY: no buffer is given; the kernel takes frames from the ring.
        match unsafe { libc::send(self.fd.as_raw_fd(), std::ptr::null(), 0, 0) } {
            -1 => match io::Error::last_os_error() {
                error if matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN)) => Ok(()),
                error => Err(error),
            },
            _ => Ok(()),
        }
    }
}

impl Drop for TxRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `open` with this length, and no slice of it is left.
        unsafe { libc::munmap(self.base.cast(), SLOTS * SLOT_LEN) };
    }
}

fn set<T>(fd: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`, plain integers, which the kernel only reads.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, name, std::ptr::from_ref(value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn by_ring(if_index: u32, bypass: bool, len: usize, count: usize) -> io::Result<()> {
    let ring = TxRing::open(if_index, bypass)?;
    for n in 0..count {
        let slot = n % SLOTS;
        while ring.status(slot).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE {
            ring.kick()?;
        }
        // SAFETY: the slot is ours while its status is TP_STATUS_AVAILABLE, and `len` bytes fit behind its header.
        let frame = unsafe { std::slice::from_raw_parts_mut(ring.base.add(slot * SLOT_LEN + DATA_AT), len) };
        fill(frame, n);
        // SAFETY: tp_len is the second word of the slot's header, which is ours.
        unsafe { ring.base.add(slot * SLOT_LEN + 4).cast::<u32>().write(len as u32) };
        ring.status(slot).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        if n % FRAMES_PER_CALL == FRAMES_PER_CALL - 1 {
            ring.kick()?;
        }
    }
    while (0..SLOTS).any(|slot| ring.status(slot).load(Ordering::Acquire) != libc::TP_STATUS_AVAILABLE) {
        ring.kick()?;
    }
    Ok(())
}

/// Sends while a plain socket at the other end reads: frames seen, and those that are not as they were sent.
fn watch(if_index: u32, send: impl FnOnce() -> io::Result<()>) -> io::Result<(u64, u64)> {
    let socket = PacketSocket::open().map_err(|error| error.source)?;
    // Version 3 was chosen by `open`; a socket without a ring queues packets as they are, by reference, until they are
    // read.
    socket.bind(if_index).map_err(|error| error.source)?;
    let (seen, mixed, done) =
        (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use std::os::fd::AsFd;
            let mut frame = [0u8; 2048];
            while !done.load(Ordering::Relaxed) {
                // SAFETY: pointer and length describe `frame`, which the kernel may write to.
                let len = unsafe {
                    libc::recv(
                        socket.as_fd().as_raw_fd(),
                        frame.as_mut_ptr().cast(),
                        frame.len(),
                        libc::MSG_DONTWAIT,
                    )
                };
                let Ok(len) = usize::try_from(len) else {
                    std::thread::yield_now();
                    continue;
                };
                if frame.get(12..14) == Some(&[0x88, 0xb5]) {
                    seen.fetch_add(1, Ordering::Relaxed);
                    let is_mixed = frame[14..len].iter().any(|byte| *byte != frame[11]);
                    mixed.fetch_add(u64::from(is_mixed), Ordering::Relaxed);
                }
            }
        });
        let result = send();
        std::thread::sleep(Duration::from_millis(200));
        done.store(true, Ordering::Relaxed);
        result
    })?;
    Ok((seen.load(Ordering::Relaxed), mixed.load(Ordering::Relaxed)))
}
