//! Commands in reports: for which network namespace, and with or without sudo.
//!
//! ```text
//! in(COMMAND)     := [sudo] [ip netns exec NAME | nsenter --net=PATH] COMMAND
//! write(V, PATH)  := echo V | [sudo] tee PATH
//! ```

/// Namespace and user of the commands in a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The network namespace as it was named; `None` for that of the shell.
    pub netns: Option<String>,
    /// Whether the shell is root's.
    pub is_root: bool,
}

impl Scope {
    /// A command about interfaces.
    pub(crate) fn within(&self, command: &str) -> String {
        let inside = match &self.netns {
            None => String::new(),
            Some(name) if name.contains('/') => format!("nsenter {} ", quoted(&format!("--net={name}"))),
            // A number that is not a name is a process, as for the sockets of this program.
            Some(name) if is_number(name) && !tapline_sys::NetNs::names().contains(name) => {
                format!("nsenter --net=/proc/{name}/ns/net ")
            }
            Some(name) => format!("ip netns exec {} ", quoted(name)),
        };
        format!("{}{inside}{command}", self.sudo())
    }

    /// A command about the whole machine.
    pub(crate) fn machine(&self, command: &str) -> String {
        format!("{}{command}", self.sudo())
    }

    /// Writing to files of the kernel. The path is not quoted, so that it may have wildcards.
    pub(crate) fn write(&self, value: &str, path: &str) -> String {
        format!("echo {value} | {}tee {path}", self.sudo())
    }

    fn sudo(&self) -> &'static str {
        if self.is_root { "" } else { "sudo " }
    }
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())
}

/// A word that a shell takes as it is. Interfaces may be called anything without a slash or a space.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:=/@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_carry_namespace_and_sudo() {
        let root = Scope { netns: None, is_root: true };
        assert_eq!(root.within("ethtool -K eth0 gro off"), "ethtool -K eth0 gro off");
        let user = Scope { netns: Some("blue".into()), is_root: false };
        assert_eq!(user.within("ethtool x"), "sudo ip netns exec blue ethtool x");
        assert_eq!(user.machine("sysctl -w a=1"), "sudo sysctl -w a=1");
        assert_eq!(user.write("1", "/sys/x*"), "echo 1 | sudo tee /sys/x*");
        let path = Scope { netns: Some("/run/user/1/ns".into()), is_root: true };
        assert_eq!(path.within("ip link"), "nsenter --net=/run/user/1/ns ip link");
    }

    #[test]
    fn names_cannot_run_anything() {
        assert_eq!(quoted("eth0.100@if3"), "eth0.100@if3");
        assert_eq!(quoted("$(id)"), "'$(id)'");
        assert_eq!(quoted("a';id;'"), "'a'\\'';id;'\\'''");
        assert_eq!(quoted(""), "''");
    }
}
