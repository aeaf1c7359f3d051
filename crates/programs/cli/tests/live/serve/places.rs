//! Places of graphs that the daemon publishes: tables `[[publish]]`.

use super::*;

const PLACES: &str = r#"[[publish]]
name = "some"
capture = "office"
stages = 'filter("udp") -> sample(1/3)'
buffer = 4
[[publish]]
name = "big"
capture = "office"
stages = 'filter("udp") -> filter("greater 300")'
buffer = 4
[[access]]
captures = ["some"]
users = ["65534"]
snap_len = 60
"#;

/// The readers of a capture of this name.
fn readers_of(daemon: &Daemon, name: &str) -> Vec<Value> {
    let status = daemon.status();
    let captures = status["captures"].as_array().expect("a list");
    let capture = captures.iter().find(|capture| capture["name"] == name).expect("it is there");
    capture["readers"].as_array().expect("a list").clone()
}

#[test]
fn the_daemon_publishes_places_by_their_rules() {
    const TEST: &str = "the_daemon_publishes_places_by_their_rules";
    if !root_or_skip(TEST) {
        return;
    }
    let Some(mut daemon) = Daemon::with_rules(TEST, PLACES) else { return };
    wait_for("the graph to read", || readers_of(&daemon, "office").len() == 1);
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), daemon.folder.path()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let reader = |uid: u32, capture: &str, file: &str| {
        let file = folder.path().join(file);
        let mut command = tapline(["capture", "-i", &format!("tap:{capture}"), "--json", "--socket"]);
        command.arg(daemon.socket()).arg("-w").arg(&file).uid(uid).gid(uid);
        Reader { child: Some(command.spawn().expect("it may be run")), file }
    };
    let mut refused = reader(NOBODY, "big", "refused.pcap");
    refused.end().failed_saying(&["no capture \"big\" that you may read; there is some"]);
    let readers = [reader(NOBODY, "some", "0.pcap"), reader(0, "some", "1.pcap"), reader(0, "big", "2.pcap")];
    wait_for("three readers", || {
        (readers_of(&daemon, "some").len(), readers_of(&daemon, "big").len()) == (2, 1)
    });
    let oracles = Oracles::start(&daemon, &["udp", "udp and greater 300"]);
    daemon.send(&frames(31, 3000));
    let [udp, big]: [Vec<Vec<u8>>; 2] = oracles.end().try_into().unwrap();
    let sampled = daemon.file("sampled.pcap");
    let text = format!(
        "file({:?}) -> sample(1/3) -> record({:?})",
        daemon.file("oracle0.pcap").display().to_string(),
        sampled.display().to_string()
    );
    run(["run", "-e", &text]).succeeded();
    let some = bytes_of(packets_of(&sampled));
    assert!(some.len() * 3 >= udp.len() - 3 && !some.is_empty());
    let cut: Vec<Vec<u8>> = some.iter().map(|packet| packet[..packet.len().min(60)].to_vec()).collect();
    let expected = [cut, some, big];
    let offered = |capture: &str| -> u64 {
        readers_of(&daemon, capture).iter().map(|one| one["counts"]["delivered"].as_u64().unwrap()).sum()
    };
    wait_for("packets to be read", || {
        (offered("some"), offered("big")) == (2 * expected[1].len() as u64, expected[2].len() as u64)
    });
    for ((reader, expected), name) in
        readers.into_iter().zip(expected).zip(["tap:some", "tap:some", "tap:big"])
    {
        let (packets, tap) = reader.interrupt_as(name);
        assert!(packets == expected, "{name}: {} packets, not {}", packets.len(), expected.len());
        assert_eq!(tap["offered"], packets.len(), "{name}");
    }
    daemon.end();
}

#[test]
fn stages_that_the_daemon_does_not_run_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    for (stages, words) in [
        ("smaple(1/2)", &["no class of stages `smaple`"][..]),
        ("record(\"/x.pcap\")", &["nothing follows it"]),
        ("t :: count -> record(\"/x.pcap\"); t", &["does not run the stage record"]),
        ("tee -> filter(\"udp\"); device(lo) -> drop; device(lo)", &["does not run the stage device"]),
        ("t :: count -> flow -> ipfix(\"127.0.0.1:4739\"); t", &["does not run the stage ipfix"]),
        ("publish(other); device(\"tap:office\")", &["publish", "no table of its own"]),
    ] {
        let text = format!(
            "socket = \"{}/s\"\n[[capture]]\nname = \"office\"\ninterfaces = [\"lo\"]\n[[publish]]\nname = \"a\"\ncapture = \"office\"\nstages = '{stages}'\n",
            folder.path().display()
        );
        fs::write(&path, text).unwrap();
        run(["serve", "--config", path.to_str().unwrap()]).failed_saying(words);
    }
}

/// The filters of a client's graph are asked at the daemon, within the rules: what all of them refuse never comes.
#[test]
fn filters_of_a_clients_graph_run_at_the_daemon() {
    const TEST: &str = "filters_of_a_clients_graph_run_at_the_daemon";
    if !root_or_skip(TEST) {
        return;
    }
    let access = "[[access]]\nusers = [\"65534\"]\nfilter = \"udp\"\nsnap_len = 60\n";
    let Some(mut daemon) = Daemon::with_rules(TEST, access) else { return };
    fs::set_permissions(daemon.folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let graph = |uid: u32, text: &str| {
        let known = daemon.readers().len();
        let mut command = tapline(["run", "--json", "-e", text]);
        command.env("TAPLINE_SOCKET", daemon.socket()).uid(uid).gid(uid);
        let reader =
            Reader { child: Some(command.spawn().expect("it may be run")), file: daemon.file("none") };
        wait_for("a reader", || daemon.readers().len() > known);
        reader
    };
    let one = "device(\"tap:office\") -> filter(\"greater 300\") -> sample(1/2) -> count";
    let two = "d :: device(\"tap:office\"); d -> filter(\"udp\") -> cut(l4) -> count; d -> filter(\"icmp\") -> count";
    let graphs = [graph(NOBODY, one), graph(0, two)];
    let asked: Vec<Value> = daemon.readers().iter().map(|reader| reader["filter"].clone()).collect();
    assert!(asked.contains(&"greater 300".into()) && asked.contains(&"(udp) or (icmp)".into()), "{asked:?}");
    let wishes = ["udp and greater 300", "udp or icmp"];
    let oracles = Oracles::start(&daemon, &wishes);
    daemon.send(&frames(33, 3000));
    let oracles = oracles.end();
    daemon.settle(oracles[1].len() as u64, 2);
    for ((mut graph, expected), wish) in graphs.into_iter().zip(oracles).zip(wishes) {
        graph.signal("INT");
        let account = graph.end().succeeded().account();
        let offered = &account.interface("tap:office")["tap"]["offered"];
        assert_eq!(
            (offered, account.count("delivered")),
            (&expected.len().into(), expected.len() as u64),
            "{wish}"
        );
    }
    daemon.end();
}
