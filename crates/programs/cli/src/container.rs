//! Containers by name: the process in whose network namespace a container's interfaces are.
//!
//! ```text
//! containerd, Kubernetes   /run/containerd/io.containerd.runtime.v2.task/SPACE/ID/{init.pid,config.json}
//! Docker                   /var/lib/docker/containers/ID/config.v2.json
//! Podman, CRI-O            /run/containers/storage/overlay-containers/ID/userdata/{pidfile,config.json}
//! systemd-nspawn, machined /run/systemd/machines/NAME
//! LXC, Incus               a control group lxc.payload.NAME of a process
//! ```
//!
//! Files that runtimes leave for others are read, and no runtime is asked: no socket, no client, no version of an
//! interface.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The most of a file that is read, and entries of a directory.
const FILE_MAX: u64 = 4 << 20;
const ENTRIES_MAX: usize = 100_000;
/// The least number of letters by which an identifier may be shortened.
const ID_MIN: usize = 4;

/// Annotations in `config.json` that hold names of containers and pods.
const NAMES: [&str; 6] = [
    "io.kubernetes.cri.container-name",
    "io.kubernetes.cri.sandbox-name",
    "io.kubernetes.container.name",
    "io.kubernetes.pod.name",
    "io.kubernetes.cri-o.Name",
    "io.podman.annotations.name",
];

/// A container that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Container {
    id: String,
    names: Vec<String>,
    process: u32,
}

/// The number of the process of the container that has this name or identifier, as the name of a network namespace.
///
/// # Errors
/// If no container has it that runs, or several have.
pub(crate) fn process(name: &str) -> Result<String, String> {
    find(Path::new("/"), name).map(|process| process.to_string())
}

fn find(root: &Path, name: &str) -> Result<u32, String> {
    let mut found: BTreeMap<u32, Container> = BTreeMap::new();
    for container in all(root).into_iter().filter(|container| container.is_called(name)) {
        if root.join(format!("proc/{}/ns/net", container.process)).exists() {
            found.entry(container.process).or_insert(container);
        }
    }
    // Containers of a pod share its network: any of them will do.
    let mut networks = found.values().map(|container| network(root, container.process)).collect::<Vec<_>>();
    networks.sort();
    networks.dedup();
    match (found.first_key_value(), networks.len()) {
        (Some((process, _)), 1) => Ok(*process),
        (None, _) => Err(format!(
            "no container of this name or identifier runs here (containerd, Docker, Podman, CRI-O, systemd, LXC); \
             --netns takes the number of one of its processes ({name})"
        )),
        (Some(_), several) => {
            let ids: Vec<&str> = found.values().map(|container| container.id.as_str()).collect();
            Err(format!("{several} containers with networks of their own are called so: {}", ids.join(", ")))
        }
    }
}

impl Container {
    fn is_called(&self, name: &str) -> bool {
        let is_id = name.len() >= ID_MIN && self.id.starts_with(name);
        is_id || self.names.iter().any(|own| own == name)
    }
}

/// Identity of the network namespace of a process.
fn network(root: &Path, process: u32) -> PathBuf {
    let link = root.join(format!("proc/{process}/ns/net"));
    fs::read_link(&link).unwrap_or(link)
}

fn all(root: &Path) -> Vec<Container> {
    let mut containers = of_containerd(root);
    containers.extend(of_docker(root));
    containers.extend(of_podman(root));
    containers.extend(of_machines(root));
    containers.extend(of_lxc(root));
    containers
}

fn of_containerd(root: &Path) -> Vec<Container> {
    let spaces = entries(&root.join("run/containerd/io.containerd.runtime.v2.task"));
    let tasks = spaces.iter().flat_map(|space| entries(space));
    tasks.filter_map(|task| by_pid_file(&task, &task.join("init.pid"), &task.join("config.json"))).collect()
}

fn of_podman(root: &Path) -> Vec<Container> {
    let stored = entries(&root.join("run/containers/storage/overlay-containers"));
    let read = |folder: &PathBuf| {
        let data = folder.join("userdata");
        by_pid_file(folder, &data.join("pidfile"), &data.join("config.json"))
    };
    stored.iter().filter_map(read).collect()
}

/// A container whose folder has its identifier as name.
fn by_pid_file(folder: &Path, pid: &Path, config: &Path) -> Option<Container> {
    let process = text(pid)?.trim().parse().ok()?;
    let config: Value = text(config).and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let mut names: Vec<String> =
        NAMES.iter().filter_map(|key| Some(config["annotations"][key].as_str()?.to_owned())).collect();
    names.extend(config["hostname"].as_str().map(str::to_owned));
    Some(Container { id: file_name(folder), names, process })
}

fn of_docker(root: &Path) -> Vec<Container> {
    let read = |folder: &PathBuf| {
        let config: Value = serde_json::from_str(&text(&folder.join("config.v2.json"))?).ok()?;
        let process = u32::try_from(config["State"]["Pid"].as_u64()?).ok().filter(|process| *process > 0)?;
        let name = config["Name"].as_str().unwrap_or_default().trim_start_matches('/').to_owned();
        Some(Container { id: file_name(folder), names: vec![name], process })
    };
    entries(&root.join("var/lib/docker/containers")).iter().filter_map(read).collect()
}

fn of_machines(root: &Path) -> Vec<Container> {
    let read = |path: &PathBuf| {
        let text = text(path)?;
        let leader = text.lines().find_map(|line| line.strip_prefix("LEADER="))?;
        Some(Container {
            id: String::new(),
            names: vec![file_name(path)],
            process: leader.trim().parse().ok()?,
        })
    };
    entries(&root.join("run/systemd/machines")).iter().filter_map(read).collect()
}

/// The first process of each control group that LXC made.
fn of_lxc(root: &Path) -> Vec<Container> {
    let mut first: BTreeMap<String, u32> = BTreeMap::new();
    for process in entries(&root.join("proc")) {
        let Ok(number) = file_name(&process).parse::<u32>() else { continue };
        let groups = text(&process.join("cgroup")).unwrap_or_default();
        let name = groups.split(['/', '\n']).find_map(|part| part.strip_prefix("lxc.payload."));
        if let Some(name) = name {
            let least = first.entry(name.to_owned()).or_insert(number);
            *least = number.min(*least);
        }
    }
    let container = |(name, process)| Container { id: String::new(), names: vec![name], process };
    first.into_iter().map(container).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder).into_iter().flatten().flatten();
    listed.take(ENTRIES_MAX).map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(FILE_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine's files below a folder.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Machine {
            Machine(tempfile::tempdir().expect("there is room"))
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
            fs::write(path, text).expect("there is room");
        }

        fn process(&self, number: u32, network: u32) {
            let folder = self.0.path().join(format!("proc/{number}/ns"));
            fs::create_dir_all(&folder).expect("there is room");
            let target = self.0.path().join(format!("net:[{network}]"));
            fs::write(&target, "").expect("there is room");
            symlink(target, folder.join("net")).expect("there is room");
        }

        fn find(&self, name: &str) -> Result<u32, String> {
            find(self.0.path(), name)
        }
    }

    #[test]
    fn each_runtime_is_understood() {
        let machine = Machine::new();
        let docker = r#"{"Name":"/web","State":{"Pid":11}}"#;
        machine.file("var/lib/docker/containers/aaaa1111/config.v2.json", docker);
        let task = "run/containerd/io.containerd.runtime.v2.task/k8s.io/bbbb2222";
        machine.file(&format!("{task}/init.pid"), "12");
        let config = r#"{"annotations":{"io.kubernetes.cri.sandbox-name":"shop-7"}}"#;
        machine.file(&format!("{task}/config.json"), config);
        let podman = "run/containers/storage/overlay-containers/cccc3333/userdata";
        machine.file(&format!("{podman}/pidfile"), "13\n");
        machine.file("run/systemd/machines/builder", "NAME=builder\nLEADER=14\n");
        machine.file("proc/16/cgroup", "0::/lxc.payload.old/init.scope\n");
        machine.file("proc/15/cgroup", "0::/lxc.payload.old\n");
        (11..=16).for_each(|number| machine.process(number, number));
        let names = ["web", "aaaa", "shop-7", "bbbb2222", "cccc3333", "builder", "old"];
        assert_eq!(names.map(|name| machine.find(name).expect(name)), [11, 11, 12, 12, 13, 14, 15]);
    }

    #[test]
    fn what_does_not_run_or_is_not_alone_is_told() {
        let machine = Machine::new();
        for (id, process) in [("aaaa1111", 11), ("aaaa2222", 12)] {
            let config = format!(r#"{{"Name":"/web","State":{{"Pid":{process}}}}}"#);
            machine.file(&format!("var/lib/docker/containers/{id}/config.v2.json"), &config);
        }
        machine
            .file("var/lib/docker/containers/bbbb/config.v2.json", r#"{"Name":"/ended","State":{"Pid":0}}"#);
        machine.file("var/lib/docker/containers/cccc/config.v2.json", "not JSON");
        assert!(machine.find("web").expect_err("it has no process").contains("no container"));
        machine.process(11, 1);
        machine.process(12, 2);
        let several = machine.find("web").expect_err("there are two");
        assert!(several.contains("aaaa1111, aaaa2222"), "{several}");
        assert_eq!(machine.find("aaaa2"), Ok(12));
        for name in ["ended", "aa", "none"] {
            assert!(machine.find(name).is_err(), "{name}");
        }
    }

    #[test]
    fn containers_of_a_pod_share_its_network() {
        let machine = Machine::new();
        for (id, process) in [("aaaa1111", 11), ("bbbb2222", 12)] {
            let task = format!("run/containerd/io.containerd.runtime.v2.task/k8s.io/{id}");
            machine.file(&format!("{task}/init.pid"), &process.to_string());
            let config = r#"{"annotations":{"io.kubernetes.cri.sandbox-name":"pod"}}"#;
            machine.file(&format!("{task}/config.json"), config);
            machine.process(process, 7);
        }
        assert_eq!(machine.find("pod"), Ok(11));
    }
}
