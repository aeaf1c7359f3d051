//! Changes of the machine, and their undoing.
//!
//! ```text
//! change.step()       the same setting as it is now       Step { change, before }, which the caller notes before it applies the change
//! change.apply()      taken, but otherwise: NotInEffect   the caller puts `before` back; a step to undo later has change.now() as its change
//! step.undo()         now == step.change: before.apply()  put back
//!                     now == before:      nothing         it was never applied, or was undone already
//!                     else:               nothing         another program has changed it since
//! step.restore()      now != before:      before.apply()  killed while it was applied: the value now may be the driver's rounding
//! ```
//!
//! Interfaces are those of the calling thread's network namespace. Only known files can be changed
//! ([`CHANGEABLE_FILES`]): changes are read back from a journal, and a process that can write a journal must not gain
//! the right to write other files.

use std::fs;

use serde::{Deserialize, Serialize};
use tapline_sys::{LinkControl, PauseFrames};

use crate::Error;
use crate::checks::ethtool_word;

/// The files that changes may write; `*` matches one run of digits. All are files of the kernel with one word.
pub const CHANGEABLE_FILES: [&str; 7] = [
    "/proc/sys/net/core/netdev_max_backlog",
    "/proc/sys/net/core/netdev_budget",
    "/proc/sys/net/core/netdev_budget_usecs",
    "/proc/sys/net/core/bpf_jit_enable",
    "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    "/sys/devices/system/cpu/cpu*/cpuidle/state*/disable",
];

/// A setting and its new value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Offloads of an interface, on or off.
    Features {
        /// Name of the interface.
        interface: String,
        /// Names in the kernel, and whether each shall be on.
        features: Vec<(String, bool)>,
    },
    /// Descriptors of an interface's receive rings.
    ReceiveRing {
        /// Name of the interface.
        interface: String,
        /// Number.
        rx: u32,
    },
    /// Pause frames of an interface.
    Pause {
        /// Name of the interface.
        interface: String,
        /// Whether both ends negotiate.
        negotiated: bool,
        /// Whether we obey them.
        rx: bool,
        /// Whether we send them.
        tx: bool,
    },
    /// A file of the kernel.
    File {
        /// One of [`CHANGEABLE_FILES`].
        path: String,
        /// The word to write.
        value: String,
    },
}

/// A change, and the previous setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// The setting with its previous value.
    pub before: Change,
}

/// Result of an undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UndoResult {
    /// The value before was restored.
    Restored,
    /// The value was as before already.
    AlreadyRestored,
    /// Another program has changed the value meanwhile, which stays.
    ChangedSince,
}

impl Change {
    /// The interface; `None` for files.
    pub fn interface(&self) -> Option<&str> {
        match self {
            Change::Features { interface, .. }
            | Change::ReceiveRing { interface, .. }
            | Change::Pause { interface, .. } => Some(interface),
            Change::File { .. } => None,
        }
    }

    /// Reads the present value of the setting.
    ///
    /// # Errors
    /// The kernel or driver does not give the current value.
    pub fn now(&self) -> Result<Change, Error> {
        let refused = |source| Error::refused(&self.to_string(), source);
        match self {
            Change::Features { interface, features } => {
                let now = control()?.features(interface).map_err(refused)?;
                let is_on = |name: &str| now.iter().any(|feature| feature.name == name && feature.is_on);
                let features = features.iter().map(|(name, _)| (name.clone(), is_on(name))).collect();
                Ok(Change::Features { interface: interface.clone(), features })
            }
            Change::ReceiveRing { interface, .. } => {
                let rx = control()?.rings(interface).map_err(refused)?.rx;
                Ok(Change::ReceiveRing { interface: interface.clone(), rx })
            }
            Change::Pause { interface, .. } => {
                let PauseFrames { is_negotiated, rx, tx } = control()?.pause(interface).map_err(refused)?;
                Ok(Change::Pause { interface: interface.clone(), negotiated: is_negotiated, rx, tx })
            }
            Change::File { path, .. } => Ok(Change::File { path: path.clone(), value: read(path)? }),
        }
    }

    /// Makes it so, and looks whether it is.
    ///
    /// # Errors
    /// The kernel or driver refuses the change, or it has no effect.
    pub fn apply(&self) -> Result<(), Error> {
        let refused = |source| Error::refused(&self.to_string(), source);
        match self {
            Change::Features { interface, features } => {
                let wanted: Vec<(&str, bool)> =
                    features.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
                control()?.set_features(interface, &wanted).map_err(refused)?;
            }
            Change::ReceiveRing { interface, rx } => {
                control()?.set_receive_ring(interface, *rx).map_err(refused)?;
            }
            Change::Pause { interface, negotiated, rx, tx } => {
                let pause = PauseFrames { is_negotiated: *negotiated, rx: *rx, tx: *tx };
                control()?.set_pause(interface, pause).map_err(refused)?;
            }
            Change::File { path, value } => write(path, value)?,
        }
        if self.now()? == *self { Ok(()) } else { Err(Error::NotInEffect { what: self.to_string() }) }
    }

    /// This change with the present setting.
    ///
    /// # Errors
    /// The kernel or driver does not give the current value.
    pub fn step(&self) -> Result<Step, Error> {
        Ok(Step { change: self.clone(), before: self.now()? })
    }
}

impl Step {
    /// Restores the value before, unless another program has set a third value since.
    ///
    /// # Errors
    /// The kernel or driver refuses.
    pub fn undo(&self) -> Result<UndoResult, Error> {
        match (self.change.now()?, &self.change, &self.before) {
            (now, _, before) if now == *before => Ok(UndoResult::AlreadyRestored),
            (
                Change::Features { interface, features: now },
                Change::Features { features: to, .. },
                Change::Features { features: from, .. },
            ) => {
                let features = switched(&now, to, from);
                if features.is_empty() {
                    return Ok(UndoResult::ChangedSince);
                }
                Change::Features { interface, features }.apply().map(|()| UndoResult::Restored)
            }
            (now, change, before) if now == *change => before.apply().map(|()| UndoResult::Restored),
            _ => Ok(UndoResult::ChangedSince),
        }
    }

    /// Restores the value before, whatever is now: for a change that may have been cut short, with an unknown result in
    /// the driver.
    ///
    /// # Errors
    /// The kernel or driver refuses.
    pub fn restore(&self) -> Result<UndoResult, Error> {
        if self.change.now()? == self.before {
            return Ok(UndoResult::AlreadyRestored);
        }
        self.before.apply().map(|()| UndoResult::Restored)
    }
}

impl std::fmt::Display for Change {
    /// `eth0: gro off tso off`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |is_on: &bool| if *is_on { "on" } else { "off" };
        match self {
            Change::Features { interface, features } => {
                let switch = |(name, is_on): &(String, bool)| (ethtool_word(name).to_owned(), *is_on);
                let mut switches: Vec<(String, bool)> = features.iter().map(switch).collect();
                switches.dedup();
                write!(f, "{interface}:")?;
                switches.iter().try_for_each(|(name, is_on)| write!(f, " {name} {}", word(is_on)))
            }
            Change::ReceiveRing { interface, rx } => write!(f, "{interface}: receive ring {rx}"),
            Change::Pause { interface, negotiated, rx, tx } => {
                let (negotiated, rx, tx) = (word(negotiated), word(rx), word(tx));
                write!(f, "{interface}: pause frames rx {rx} tx {tx} negotiated {negotiated}")
            }
            Change::File { path, value } => write!(f, "{path}: {value}"),
        }
    }
}

/// The offloads of a group that the change has switched and that still are as it left them, as they were before. One by
/// one: the kernel may have switched only some, and another program may have switched others back.
fn switched(now: &[(String, bool)], to: &[(String, bool)], from: &[(String, bool)]) -> Vec<(String, bool)> {
    let value =
        |list: &[(String, bool)], name: &str| list.iter().find(|(known, _)| known == name).map(|one| one.1);
    let is_ours = |(name, was): &&(String, bool)| {
        let (now, to) = (value(now, name), value(to, name));
        now == to && to.is_some() && to != Some(*was)
    };
    from.iter().filter(is_ours).cloned().collect()
}

fn control() -> Result<LinkControl, Error> {
    LinkControl::open().map_err(Error::Interfaces)
}

fn read(path: &str) -> Result<String, Error> {
    allowed(path)?;
    let text = fs::read_to_string(path);
    text.map(|text| text.trim().to_owned()).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn write(path: &str, value: &str) -> Result<(), Error> {
    allowed(path)?;
    fs::write(path, value).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn allowed(path: &str) -> Result<(), Error> {
    let is_known = CHANGEABLE_FILES.iter().any(|pattern| matches(pattern, path));
    if is_known { Ok(()) } else { Err(Error::ForeignPath { path: path.to_owned() }) }
}

fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            let digits = path.len() - path.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            digits > 0 && matches(rest, &path[digits..])
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_files_are_written() {
        for path in [
            "/proc/sys/net/core/netdev_budget",
            "/sys/devices/system/cpu/cpu17/cpufreq/scaling_governor",
            "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable",
        ] {
            assert!(allowed(path).is_ok(), "{path}");
        }
        for path in [
            "/etc/passwd",
            "/proc/sys/net/core/../../kernel/core_pattern",
            "/sys/devices/system/cpu/cpu/cpufreq/scaling_governor",
            "/sys/devices/system/cpu/cpu0/../cpu1/cpufreq/scaling_governor",
            "/sys/devices/system/cpu/cpu0/cpuidle/state2/disable\n",
            "",
        ] {
            let change = Change::File { path: path.into(), value: "1".into() };
            assert!(matches!(change.apply(), Err(Error::ForeignPath { .. })), "{path}");
            assert!(matches!(change.now(), Err(Error::ForeignPath { .. })), "{path}");
        }
    }

    #[test]
    fn offloads_are_put_back_one_by_one() {
        let list = |text: &str| -> Vec<(String, bool)> {
            text.split(' ').map(|word| (word[..1].to_owned(), word.ends_with('+'))).collect()
        };
        let (from, to) = (list("a+ b+ c-"), list("a- b- c-"));
        assert_eq!(switched(&list("a- b- c-"), &to, &from), list("a+ b+"));
        assert_eq!(switched(&list("a- b+ c-"), &to, &from), list("a+"), "b was never switched, or is back");
        assert_eq!(switched(&list("a+ b+ c+"), &to, &from), [], "c is not ours");
        assert_eq!(switched(&list("a-"), &[], &from), [], "a change that names nothing");
    }

    #[test]
    fn a_value_that_is_neither_old_nor_new_stays() {
        let path = "/proc/sys/net/core/netdev_budget";
        let file = |value: &str| Change::File { path: path.into(), value: value.into() };
        let Ok(Change::File { value: now, .. }) = file("").now() else {
            eprintln!("skipped: a_value_that_is_neither_old_nor_new_stays: no {path} in this namespace");
            return;
        };
        let step = Step { change: file("-1"), before: file("-2") };
        assert_eq!(step.undo().unwrap(), UndoResult::ChangedSince);
        assert_eq!(
            Step { change: file("-1"), before: file(&now) }.undo().unwrap(),
            UndoResult::AlreadyRestored
        );
    }

    #[test]
    fn a_file_takes_its_own_value_and_no_nonsense() {
        let path = "/proc/sys/net/core/netdev_budget";
        let file = |value: &str| Change::File { path: path.into(), value: value.into() };
        let now = file("").now();
        match now.and_then(|now| now.apply().map(|()| now)) {
            Ok(now) => {
                assert!(matches!(file("nonsense").apply(), Err(Error::File { .. })));
                assert_eq!(file("").now().unwrap(), now);
            }
            Err(error) => eprintln!("skipped: a_file_takes_its_own_value_and_no_nonsense: {error}"),
        }
    }

    /// A setting of the kernel that is as it was again when this is dropped.
    struct RestoreGuard(Change);

    impl Drop for RestoreGuard {
        fn drop(&mut self) {
            let _ = self.0.apply();
        }
    }

    #[test]
    fn a_value_set_by_others_is_restored() {
        // No driver that rounds is needed: the kernel takes numbers in hexadecimal, and gives them back in decimal.
        let test = "a_value_set_by_others_is_restored";
        let file = |value: &str| Change::File {
            path: "/proc/sys/net/core/netdev_budget_usecs".into(),
            value: value.into(),
        };
        let Ok(Change::File { value: now, .. }) = file("").now() else {
            return eprintln!("skipped: {test}: the kernel does not report the setting");
        };
        let other = now.parse::<u64>().expect("a number") + 1;
        let step = file(&format!("{other:#x}")).step().unwrap();
        let _kept = RestoreGuard(step.before.clone());
        match step.change.apply() {
            Err(Error::NotInEffect { .. }) => {}
            Err(error) => return eprintln!("skipped: {test}: {error}"),
            Ok(()) => panic!("the kernel gives back what it was given"),
        }
        let taken = step.change.now().unwrap();
        assert_eq!(taken, file(&other.to_string()));
        assert_eq!(
            step.undo().unwrap(),
            UndoResult::ChangedSince,
            "compared with the wish, the value is another program's"
        );
        let made = Step { change: taken.clone(), before: step.before.clone() };
        assert_eq!(made.undo().unwrap(), UndoResult::Restored);
        assert_eq!(file("").now().unwrap(), step.before);
        taken.apply().unwrap();
        assert_eq!(step.restore().unwrap(), UndoResult::Restored);
        assert_eq!(file("").now().unwrap(), step.before);
        assert_eq!(step.restore().unwrap(), UndoResult::AlreadyRestored);
    }

    #[test]
    fn a_change_reads_as_one_line() {
        let names = ["tx-tcp-segmentation", "tx-tcp6-segmentation", "rx-gro", "rx-new"];
        let features = names.iter().map(|name| ((*name).to_owned(), *name == "rx-new")).collect();
        let change = Change::Features { interface: "eth0".into(), features };
        assert_eq!(change.to_string(), "eth0: tso off gro off rx-new on");
        assert_eq!(change.interface(), Some("eth0"));
    }

    #[test]
    fn missing_settings_have_no_value() {
        let change = Change::ReceiveRing { interface: "no-such-if".into(), rx: 1 };
        let text = change.step().unwrap_err().to_string();
        assert!(text.starts_with("no-such-if: receive ring 1: ioctl(ETHTOOL_GRINGPARAM)"), "{text}");
    }
}
