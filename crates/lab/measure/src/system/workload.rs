//! Workloads as data: the frames, the receivers, and the question that they answer.
//!
//! ```toml
//! name = "driver"                      # letters, digits and dashes
//! title = "Test 2: receive and discard"
//! about = "What ..."
//! source = "Year-2000 tests"           # whose question it is
//! kind = "matrix"                      # every program on every case; or "limit": the highest rate without loss
//! programs = ["tapline", "tcpdump"]
//! traffic = "udp flows=1000"           # a recipe of `tapline generate`, without size, rate, count and duration
//! rate = 100_000                       # packets a second; left out: as fast as it goes
//! seconds = 2
//! sizes = [60, 1514]                   # bytes of a frame without check sequence
//! snaps = [68, 262144]
//! filters = [""]
//! buffers = [32]                       # MiB of the program's ring
//! store = false                        # into a file, or discarded
//! chart = "share"                      # share captured, "rate" captured, "cost" of a packet; limits have a chart of their own
//! figures = [{ what = "frames a second at 64 bytes", value = "148,809" }]
//! quick = { seconds = 0.5, sizes = [60] }
//! ```

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::programs::Program;

/// The built-in ones, in the order in which they run.
const BUILT_IN: [(&str, &str); 6] = [
    ("filter.toml", include_str!("../../workloads/filter.toml")),
    ("driver.toml", include_str!("../../workloads/driver.toml")),
    ("disk.toml", include_str!("../../workloads/disk.toml")),
    ("sweep.toml", include_str!("../../workloads/sweep.toml")),
    ("table.toml", include_str!("../../workloads/table.toml")),
    ("limit.toml", include_str!("../../workloads/limit.toml")),
];

/// Lengths of frames on the virtual link: up to its MTU and an Ethernet header. Headers need the least length.
const SIZES: std::ops::RangeInclusive<u32> = 60..=1514;
/// A run is no longer than this.
const SECONDS_MAX: f64 = 600.0;
/// Cases of one workload: programs, sizes, snap lengths and filters multiplied.
const CASES_MAX: usize = 1000;
/// Sizes of rings in MiB, and the usual one.
const BUFFERS: std::ops::RangeInclusive<u32> = 1..=1024;
const BUFFER_MIB: u32 = 32;
/// libpcap's value for whole packets.
const SNAP_ALL: u32 = 262_144;

/// Kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Every program receives every case.
    Matrix,
    /// The highest rate at which a program loses nothing is looked for.
    Limit,
}

/// Quantity in the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Chart {
    /// Packets captured of those offered.
    #[default]
    Share,
    /// Packets captured a second.
    Rate,
    /// Processor time of a packet: the kernel's on the receiving core and the program's.
    Cost,
}

/// A figure of the source, for comparison with ours.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Figure {
    /// The measured task.
    pub(crate) what: String,
    pub(crate) value: String,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    #[serde(default)]
    pub(crate) source: String,
    pub(crate) kind: Kind,
    pub(crate) programs: Vec<Program>,
    #[serde(default)]
    pub(crate) traffic: String,
    #[serde(default)]
    pub(crate) rate: Option<u64>,
    pub(crate) seconds: f64,
    pub(crate) sizes: Vec<u32>,
    #[serde(default = "all_of_it")]
    pub(crate) snaps: Vec<u32>,
    #[serde(default = "no_filter")]
    pub(crate) filters: Vec<String>,
    /// Sizes of the program's ring in MiB.
    #[serde(default = "usual_buffer")]
    pub(crate) buffers: Vec<u32>,
    #[serde(default)]
    pub(crate) store: bool,
    #[serde(default)]
    pub(crate) chart: Chart,
    #[serde(default)]
    pub(crate) figures: Vec<Figure>,
    #[serde(default, skip_serializing)]
    quick: Quick,
}

/// Overrides with `--quick`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    programs: Option<Vec<Program>>,
    seconds: Option<f64>,
    sizes: Option<Vec<u32>>,
    snaps: Option<Vec<u32>>,
    filters: Option<Vec<String>>,
}

fn all_of_it() -> Vec<u32> {
    vec![SNAP_ALL]
}

fn usual_buffer() -> Vec<u32> {
    vec![BUFFER_MIB]
}

fn no_filter() -> Vec<String> {
    vec![String::new()]
}

/// One program on one kind of traffic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) size: u32,
    pub(crate) snap: u32,
    pub(crate) filter: String,
    /// MiB of the program's ring.
    pub(crate) buffer: u32,
}

impl Workload {
    /// The names of the built-in workloads.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().filter_map(|(file, _)| file.strip_suffix(".toml"))
    }

    /// The workloads of these names and files; without any, all that are built in.
    ///
    /// # Errors
    /// If a name is unknown, or a file cannot be read or has an invalid value, with its line.
    pub(crate) fn load(wanted: &[String], is_quick: bool) -> Result<Vec<Workload>> {
        let built_in =
            |name: &str| BUILT_IN.iter().find(|(file, _)| file.strip_suffix(".toml") == Some(name));
        let mut workloads = Vec::new();
        for (file, text) in BUILT_IN.iter().filter(|_| wanted.is_empty()) {
            workloads.push(Workload::parse(file, text)?);
        }
        for name in wanted {
            workloads.push(match built_in(name) {
                Some((file, text)) => Workload::parse(file, text)?,
                None => Workload::read(name)?,
            });
        }
        if is_quick {
            workloads.iter_mut().for_each(Workload::hurry);
        }
        Ok(workloads)
    }

    fn read(name: &str) -> Result<Workload> {
        let known = Workload::names().collect::<Vec<_>>().join(", ");
        let text = fs::read_to_string(Path::new(name))
            .with_context(|| format!("no workload and no file {name:?}; built in are {known}"))?;
        Workload::parse(name, &text)
    }

    fn parse(file: &str, text: &str) -> Result<Workload> {
        let workload: Workload = toml::from_str(text).with_context(|| file.to_owned())?;
        workload.check().with_context(|| file.to_owned())?;
        Ok(workload)
    }

    fn check(&self) -> Result<()> {
        let is_name =
            |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        ensure!(is_name(&self.name), "name: letters, digits and dashes, not {:?}", self.name);
        let is_time = |seconds: f64| seconds > 0.0 && seconds <= SECONDS_MAX;
        let quick = &self.quick;
        let times = [self.seconds, quick.seconds.unwrap_or(1.0)];
        ensure!(times.into_iter().all(is_time), "seconds: more than 0, up to {SECONDS_MAX}");
        let sizes = self.sizes.iter().chain(quick.sizes.iter().flatten());
        for size in sizes {
            ensure!(SIZES.contains(size), "sizes: {} to {}, not {size}", SIZES.start(), SIZES.end());
        }
        for buffer in &self.buffers {
            ensure!(
                BUFFERS.contains(buffer),
                "buffers: {} to {} MiB, not {buffer}",
                BUFFERS.start(),
                BUFFERS.end()
            );
        }
        ensure!(self.rate != Some(0), "rate: 1 or more; leave it out for as fast as it goes");
        for word in self.traffic.split_whitespace() {
            let key = word.split('=').next().unwrap_or(word);
            let is_ours = !["size", "rate", "count", "duration", "start"].contains(&key);
            ensure!(is_ours, "traffic: {key} is a key of the workload's own");
        }
        let cases = self.cases().len();
        ensure!(
            cases > 0,
            "there is nothing to do: programs, sizes, snaps, filters and buffers need one element at least"
        );
        ensure!(cases <= CASES_MAX, "{cases} cases; {CASES_MAX} at most");
        Ok(())
    }

    fn hurry(&mut self) {
        let quick = std::mem::take(&mut self.quick);
        self.programs = quick.programs.unwrap_or(std::mem::take(&mut self.programs));
        self.seconds = quick.seconds.unwrap_or(self.seconds);
        self.sizes = quick.sizes.unwrap_or(std::mem::take(&mut self.sizes));
        self.snaps = quick.snaps.unwrap_or(std::mem::take(&mut self.snaps));
        self.filters = quick.filters.unwrap_or(std::mem::take(&mut self.filters));
    }

    /// Every program on every size, snap length, buffer and filter; programs are the innermost.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for filter in &self.filters {
            for &buffer in &self.buffers {
                for &snap in &self.snaps {
                    for &size in &self.sizes {
                        let case = |&program| Case { program, size, snap, filter: filter.clone(), buffer };
                        cases.extend(self.programs.iter().map(case));
                    }
                }
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_are_sound() {
        let all = Workload::load(&[], false).unwrap();
        assert_eq!(
            all.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(),
            Workload::names().collect::<Vec<_>>()
        );
        let cases = |all: &[Workload]| all.iter().map(|w| w.cases().len()).sum::<usize>();
        let quick = Workload::load(&[], true).unwrap();
        assert!(cases(&quick) < cases(&all));
    }

    #[test]
    fn mistakes_name_file_and_line() {
        let wrong = |text: &str| format!("{:#}", Workload::parse("x.toml", text).unwrap_err());
        let text = "name = \"x\"\ntitle = \"\"\nabout = \"\"\nkind = \"matrix\"\nprograms = [\"tapline\"]\nseconds = 1\n";
        assert!(wrong(&format!("{text}sizes = [60]\nspeed = 3\n")).contains("line 8"));
        assert!(wrong(&format!("{text}sizes = [59]\n")).contains("x.toml: sizes: 60 to 1514, not 59"));
        assert!(
            wrong(&format!("{text}sizes = [60]\nbuffers = [0]\n")).contains("buffers: 1 to 1024 MiB, not 0")
        );
        assert!(wrong(&format!("{text}sizes = []\n")).contains("nothing to do"));
        assert!(wrong(&format!("{text}sizes = [60]\nrate = 0\n")).contains("rate: 1 or more"));
        assert!(wrong(&format!("{text}sizes = [60]\ntraffic = \"udp rate=5\"\n")).contains("rate is a key"));
        assert!(wrong(&text.replace("tapline", "sniffit")).contains("sniffit"));
        assert!(
            Workload::load(&["no-such".to_owned()], false)
                .unwrap_err()
                .to_string()
                .contains("filter, driver")
        );
    }
}
