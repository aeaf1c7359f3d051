//! Clocks of adapters (`/dev/ptpN`), and their distance from the system's clock: linux/ptp_clock.h.
//!
//! ```text
//! sample := system, adapter, system      PTP_SYS_OFFSET_EXTENDED (4.18): the two readings around the adapter's register
//!         | system, adapter, system      PTP_SYS_OFFSET: three of a row, with the driver's whole work between them
//! offset := adapter - middle of both     error := half of the time between them; the sample with the least one counts
//! ```

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::SyscallError;
use crate::error::check;

/// Samples of one reading.
const SAMPLES: usize = 9;
/// `PTP_MAX_SAMPLES`.
const SAMPLES_MAX: usize = 25;

/// The distance of an adapter's clock from the system's (CLOCK_REALTIME, UTC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds by which the adapter's clock is ahead.
    pub offset_ns: i64,
    /// The most by which that may be wrong: the clock was read at some moment between two readings of the system's.
    pub error_ns: u64,
}

/// `struct ptp_clock_time`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct ClockTime {
    sec: i64,
    nsec: u32,
    reserved: u32,
}

impl ClockTime {
    fn nanos(self) -> i128 {
        i128::from(self.sec) * 1_000_000_000 + i128::from(self.nsec)
    }
}

/// `struct ptp_sys_offset_extended`: its second word is a clock id since 6.12, of which 0 is CLOCK_REALTIME.
#[repr(C)]
struct Extended {
    samples: u32,
    reserved: [u32; 3],
    times: [[ClockTime; 3]; SAMPLES_MAX],
}

/// `struct ptp_sys_offset`.
#[repr(C)]
struct Plain {
    samples: u32,
    reserved: [u32; 3],
    times: [ClockTime; 2 * SAMPLES_MAX + 1],
}

/// `_IOWR('=', 9, struct ptp_sys_offset_extended)`.
const SYS_OFFSET_EXTENDED: u64 = 3 << 30 | (size_of::<Extended>() as u64) << 16 | 0x3d << 8 | 9;
/// `_IOW('=', 5, struct ptp_sys_offset)`.
const SYS_OFFSET: u64 = 1 << 30 | (size_of::<Plain>() as u64) << 16 | 0x3d << 8 | 5;

/// Reads the clock `/dev/ptpN` of this number next to the system's clock.
///
/// # Errors
/// The error of open(2): `ENOENT` if there is no such clock, `EACCES` without the right to its device; `EOPNOTSUPP` and
/// others of ioctl(2).
pub fn read_offset(clock: u32) -> Result<ClockOffset, SyscallError> {
    const OPEN: &str = "open(/dev/ptp)";
    let device = File::open(format!("/dev/ptp{clock}"))
        .map_err(|error| SyscallError::from_errno(OPEN, error.raw_os_error().unwrap_or(libc::EIO)))?;
    let unusable = || SyscallError::from_errno("ioctl(PTP_SYS_OFFSET)", libc::ERANGE);
    // Drivers that know no better answer the plain request alone.
    match extended(&device) {
        Ok(samples) => closest(&samples).ok_or_else(unusable),
        Err(_) => closest(&plain(&device)?).ok_or_else(unusable),
    }
}

fn extended(device: &File) -> Result<[[ClockTime; 3]; SAMPLES], SyscallError> {
    let times = [[ClockTime::default(); 3]; SAMPLES_MAX];
    let mut request = Extended { samples: SAMPLES as u32, reserved: [0; 3], times };
    let fd = device.as_raw_fd();
    // SAFETY: the request's number has the size of the structure, which lives through the call and is written by it.
    let result = unsafe { libc::ioctl(fd, SYS_OFFSET_EXTENDED as _, &raw mut request) };
    check("ioctl(PTP_SYS_OFFSET_EXTENDED)", result)?;
    Ok(std::array::from_fn(|at| request.times[at]))
}

fn plain(device: &File) -> Result<[[ClockTime; 3]; SAMPLES], SyscallError> {
    let times = [ClockTime::default(); 2 * SAMPLES_MAX + 1];
    let mut request = Plain { samples: SAMPLES as u32, reserved: [0; 3], times };
    let fd = device.as_raw_fd();
    // SAFETY: as above; the request is said to be read only, and the kernel writes its answer there all the same.
    let result = unsafe { libc::ioctl(fd, SYS_OFFSET as _, &raw mut request) };
    check("ioctl(PTP_SYS_OFFSET)", result)?;
    Ok(std::array::from_fn(|at| [0, 1, 2].map(|step| request.times[2 * at + step])))
}

/// The offset by the sample whose system readings are closest together; those that step back say nothing.
fn closest(samples: &[[ClockTime; 3]]) -> Option<ClockOffset> {
    let offset = |[before, clock, after]: &[ClockTime; 3]| {
        let between = u64::try_from(after.nanos() - before.nanos()).ok()?;
        let offset_ns = i64::try_from(clock.nanos() - before.nanos() - i128::from(between / 2)).ok()?;
        Some(ClockOffset { offset_ns, error_ns: between.div_ceil(2) })
    };
    samples.iter().filter_map(offset).min_by_key(|one| one.error_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: i64, nsec: u32) -> ClockTime {
        ClockTime { sec, nsec, reserved: 0 }
    }

    #[test]
    fn requests_have_the_kernels_numbers() {
        assert_eq!((size_of::<Extended>(), size_of::<Plain>()), (1216, 832));
        assert_eq!((SYS_OFFSET_EXTENDED, SYS_OFFSET), (0xc4c0_3d09, 0x4340_3d05));
    }

    #[test]
    fn the_closest_sample_counts() {
        let tai = 37;
        let samples = [
            [at(100, 999_999_000), at(138, 600), at(101, 1_000)],
            [at(101, 2_000), at(101 + tai, 2_250), at(101, 2_401)],
            [at(103, 0), at(140, 5), at(102, 0)],
        ];
        let offset = closest(&samples).expect("two samples can be used");
        assert_eq!(offset, ClockOffset { offset_ns: 37_000_000_050, error_ns: 201 });
        let behind = closest(&[[at(1_000, 0), at(10, 50), at(1_000, 100)]]).expect("a sample");
        assert_eq!(behind, ClockOffset { offset_ns: -990_000_000_000, error_ns: 50 });
        assert_eq!(closest(&samples[2..]), None, "the clock was set back meanwhile");
        assert_eq!(closest(&[]), None);
    }

    #[test]
    fn clocks_that_are_there_are_read() {
        assert_eq!(read_offset(u32::MAX).expect_err("no machine has so many").errno(), libc::ENOENT);
        match read_offset(0) {
            Ok(offset) => assert!(offset.error_ns < 1_000_000_000, "{offset:?}"),
            Err(error) => eprintln!("skipped: clocks_that_are_there_are_read: {error}"),
        }
    }
}
