//! ClickHouse reads our blocks: the current engine in Python (`chdb`), and Debian's server of 2018 over HTTP.

#[cfg(feature = "http")]
use std::process::{Child, Stdio};

use super::*;

/// Runs statements in one session, and prints the answers as values with tabs between.
const RUN: &str = "
import sys
from chdb import session
s = session.Session()
for text in sys.argv[1:]:
    answer = str(s.query(text, 'TSV')).strip()
    if answer:
        print(answer)
";

fn answers(folder: &Path, statements: &[String]) -> Vec<String> {
    let told = finish(python().current_dir(folder).args(["-c", RUN]).args(statements)).succeeded();
    String::from_utf8(told.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// goflow2's fields, as its pb/flow.proto numbers them.
const FLOW_PROTO: &str = "syntax = \"proto3\";
message FlowMessage { uint32 type = 1; uint64 sampling_rate = 3; bytes src_addr = 6; bytes dst_addr = 7; uint64 bytes = 9; uint64 packets = 10;
uint32 in_if = 18; uint32 out_if = 19; uint32 proto = 20; uint32 src_port = 21; uint32 dst_port = 22; uint32 etype = 30; uint64 time_flow_start_ns = 111; }";

#[test]
fn the_current_engine_reads_every_format_alike() {
    if !module_or_skip("the_current_engine_reads_every_format_alike", "chdb") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 3000);
    let name = |name: &str| format!("batch+file:{}", folder.path().join(name).display());
    let to = format!("{}?format=native,{}?format=goflow,{}", name("a.native"), name("a.pb"), name("a.json"));
    run(["probe", "-r", text(&input), "--export", &to, "--batch-rows", "700"]).succeeded();
    fs::write(folder.path().join("flow.proto"), FLOW_PROTO).expect("there is room");
    let sums = |octets: &str, port: &str| {
        format!("SELECT count(), sum({octets}), sum({port}), sum(cityHash64({port}, {octets}))")
    };
    let of_rows = sums("octetDeltaCount", "sourceTransportPort");
    let found = answers(
        folder.path(),
        &[
            format!(
                "{} FROM file('a.json', JSONEachRow, 'octetDeltaCount UInt64, sourceTransportPort UInt16')",
                of_rows
            ),
            format!("{of_rows} FROM file('a.native', Native)"),
            format!(
                "{} FROM file('a.pb', Protobuf, 'bytes UInt64, src_port UInt16') SETTINGS format_schema='{}/flow:FlowMessage'",
                sums("bytes", "src_port"),
                folder.path().display()
            ),
        ],
    );
    assert!(found[0].starts_with("3000\t"), "{found:?}");
    assert_eq!((&found[1], &found[2]), (&found[0], &found[0]));
}

/// The statements of `contrib/clickhouse/flows.sql`. The packets of the tests are older than 30 days, so the tables keep
/// them.
fn tables() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/clickhouse/flows.sql");
    let tables = fs::read_to_string(path).expect("it is there");
    let without_ttl = |line| match line {
        line if !str::starts_with(line, "TTL") => line,
        line if line.ends_with(';') => ";",
        _ => "",
    };
    let tables: Vec<&str> = tables.lines().map(without_ttl).collect();
    let tables = tables.join("\n").replace("\n;", ";");
    let statements = tables.split(";\n").map(str::trim).filter(|statement| statement.contains("CREATE"));
    statements.map(str::to_owned).collect()
}

/// A question of the board, with what Grafana puts into it.
fn asked(sql: &str) -> String {
    let mut text = sql.replace("${database}", "net").replace("${host:sqlstring}", "'10.0.0.1'");
    while let Some((before, after)) = text.split_once("$__timeFilter(") {
        let (column, rest) = after.split_once(')').expect("a column");
        text = format!("{before}{column} >= toDateTime('1970-01-01 00:00:00', 'UTC'){rest}");
    }
    assert!(!text.contains('$'), "{text}");
    text
}

#[test]
fn the_board_asks_what_the_tables_have() {
    if !module_or_skip("the_board_asks_what_the_tables_have", "chdb") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 500);
    let to = format!("batch+file:{}?format=native", folder.path().join("a.native").display());
    run(["probe", "-r", text(&input), "--export", &to]).succeeded();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../contrib/grafana/flows-clickhouse.json");
    let board: Value = serde_json::from_slice(&fs::read(path).expect("it is there")).expect("an object");
    let panels = board["panels"].as_array().expect("panels");
    assert!(panels.len() >= 10);
    for panel in panels {
        let mut statements = tables();
        statements.push("INSERT INTO net.flows SELECT * FROM file('a.native', Native)".to_owned());
        statements.push(asked(panel["targets"][0]["rawSql"].as_str().expect("a question")));
        let found = answers(folder.path(), &statements);
        // The packets are of UDP.
        let is_of_tcp = panel["title"].as_str().expect("a title").starts_with("Connections");
        assert_eq!(found.is_empty(), is_of_tcp, "{}: {found:?}", panel["title"]);
    }
}

#[test]
fn a_block_that_comes_again_is_known_by_its_token() {
    if !module_or_skip("a_block_that_comes_again_is_known_by_its_token", "chdb") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 500);
    let to = format!("batch+file:{}?format=native", folder.path().join("a.native").display());
    run(["probe", "-r", text(&input), "--export", &to]).succeeded();
    let mut statements = tables();
    assert_eq!(statements.len(), 4);
    for token in ["a-1-0", "a-1-0", "a-1-1"] {
        statements.push(format!(
            "INSERT INTO net.flows SETTINGS insert_deduplication_token = '{token}', \
             deduplicate_blocks_in_dependent_materialized_views = 1 SELECT * FROM file('a.native', Native)"
        ));
        statements.push("SELECT count() FROM net.flows".to_owned());
    }
    statements.push("SELECT sum(flows) FROM net.flows_minute".to_owned());
    statements.push("SELECT count() FROM net.flows WHERE sourceAddress = toIPv6('10.0.0.1')".to_owned());
    let found = answers(folder.path(), &statements);
    assert_eq!(found[..4], ["500", "500", "1000", "1000"], "{found:?}");
    assert_ne!(found[4], "0");
}

/// Address of the server: its port stays free at this one while the server is away.
#[cfg(feature = "http")]
const HOST: &str = "127.0.0.2";

/// Debian's server in a folder of its own.
#[cfg(feature = "http")]
struct Server {
    child: Child,
    port: u16,
}

#[cfg(feature = "http")]
impl Server {
    fn start(folder: &Path, port: u16) -> Server {
        let place = folder.display();
        let config = format!(
            "<yandex><logger><level>warning</level><console>1</console></logger><http_port>{port}</http_port><listen_host>{HOST}</listen_host>\
             <path>{place}/data/</path><tmp_path>{place}/tmp/</tmp_path><users_config>{place}/users.xml</users_config><default_profile>default</default_profile>\
             <default_database>default</default_database><mark_cache_size>10000000</mark_cache_size></yandex>"
        );
        let users = "<yandex><profiles><default></default></profiles><users><default><password>sesame</password><networks><ip>::/0</ip></networks>\
             <profile>default</profile><quota>default</quota></default></users><quotas><default></default></quotas></yandex>";
        fs::write(folder.join("config.xml"), config).expect("there is room");
        fs::write(folder.join("users.xml"), users).expect("there is room");
        let mut command = std::process::Command::new("clickhouse-server");
        command.arg(format!("--config-file={place}/config.xml")).current_dir(folder);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it is there");
        let server = Server { child, port };
        wait_for("the server", || server.ask("SELECT 1").is_some());
        server
    }

    /// The answer to a question.
    fn ask(&self, question: &str) -> Option<String> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect((HOST, self.port)).ok()?;
        let len = question.len();
        write!(
            stream,
            "POST /?user=default&password=sesame HTTP/1.0\r\ncontent-length: {len}\r\n\r\n{question}"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.contains(" 200 ").then(|| body.trim().to_owned())
    }

    fn kill(mut self) -> u16 {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.port
    }
}

#[cfg(feature = "http")]
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(feature = "http")]
#[test]
fn a_killed_server_has_every_flow_in_the_end() {
    if !program_or_skip("a_killed_server_has_every_flow_in_the_end", "clickhouse-server") {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room");
    let input = capture(folder.path(), 3000);
    let secret = folder.path().join("secret");
    fs::write(&secret, "sesame\n").expect("there is room");
    let listener = std::net::TcpListener::bind((HOST, 0)).expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    drop(listener);
    let mut server = Server::start(folder.path(), port);
    let url = format!("clickhouse://default@{HOST}:{port}/flows?create=yes&old=yes&compress=gzip");
    let spool = format!("{},100M", folder.path().join("spool").display());
    let words = [
        "--export-secret",
        text(&secret),
        "--spool",
        &spool,
        "--batch-rows",
        "100",
        "--patience",
        "60",
        "--json",
    ];
    let probe = || run(["probe", "-r", text(&input), "--export", &url].iter().chain(&words)).succeeded();
    let told = probe();
    assert_eq!(counters(&told)["acknowledged"], 3000);
    assert_eq!(server.ask("SELECT count() FROM flows").as_deref(), Some("3000"));
    for _ in 0..3 {
        let words = ["probe", "-r", text(&input), "--export", &url];
        let child = tapline(
            words.iter().chain(&["--batch-rows", "100", "--patience", "1"]).chain(&["--spool", &spool]),
        )
        .args(["--export-secret", text(&secret)])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
        std::thread::sleep(std::time::Duration::from_millis(60));
        let port = server.kill();
        let ended = child.and_then(|mut child| child.wait()).expect("it ends");
        assert!(ended.success(), "what was not taken is in the spool");
        server = Server::start(folder.path(), port);
    }
    probe();
    let count = |question: &str| {
        server.ask(question).and_then(|answer| answer.parse::<u64>().ok()).expect("a number")
    };
    // This server knows no tokens: a block whose acknowledgement was lost is there twice.
    assert!(count("SELECT count() FROM flows") >= 5 * 3000);
    assert_eq!(
        count("SELECT count() FROM (SELECT communityId FROM flows GROUP BY communityId HAVING count() >= 5)"),
        3000
    );
}
