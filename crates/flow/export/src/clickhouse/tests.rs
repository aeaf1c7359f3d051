//! Answers of servers, as ClickHouse 18 to 25 give them.

use super::*;
use crate::trial::block;
use crate::trial_server::{answer, server};

fn target(endpoints: Vec<String>, is_old: bool, creates: bool) -> ClickHouseTarget {
    let address = TableAddress { endpoints, table: "net.flows".to_owned(), is_old, creates };
    let columns = vec![
        ("sourceAddress".to_owned(), "IPv6".to_owned()),
        ("octetDeltaCount".to_owned(), "UInt64".to_owned()),
    ];
    let schema = Schema { version: 1, columns };
    ClickHouseTarget::new(address, "clickhouse".to_owned(), Some("me".to_owned()), None, schema)
}

fn base(url: &str) -> String {
    url.trim_end_matches("/flows").to_owned()
}

#[test]
fn answers_decide_what_becomes_of_an_insert() {
    let answers = vec![
        answer("200 OK", "x-clickhouse-summary: {\"read_rows\":\"1\",\"written_rows\":\"1\"}\r\n", ""),
        answer("200 OK", "x-clickhouse-summary: {\"written_rows\":\"0\"}\r\n", ""),
        answer(
            "500 Error",
            "x-clickhouse-exception-code: 252\r\n",
            "Code: 252. DB::Exception: Too many parts",
        ),
        answer("400 Bad", "", "Code: 33, e.displayText() = DB::Exception: Cannot read all data"),
        answer("404 Not Found", "x-clickhouse-exception-code: 60\r\n", "Code: 60. DB::Exception: no table"),
        answer("200 OK", "", "Code: 241. DB::Exception: Memory limit exceeded"),
    ];
    let (url, serving) = server(answers);
    let mut target = target(vec![base(&url)], false, false);
    let outcomes: Vec<Outcome> = (0..6).map(|number| target.deliver(&block(number, b"block"))).collect();
    assert_eq!(outcomes[..2], [Outcome::Delivered, Outcome::Delivered]);
    assert!(matches!(&outcomes[2], Outcome::Again(why) if why.contains("Too many parts")), "{outcomes:?}");
    assert!(matches!(&outcomes[3], Outcome::Refused(why) if why.contains("Cannot read")), "{outcomes:?}");
    assert!(matches!(&outcomes[4..], [Outcome::Again(_), Outcome::Again(_)]), "{outcomes:?}");
    let calls = serving.join().expect("it serves");
    let (head, body) = &calls[2];
    assert_eq!(body, b"block");
    for part in [
        "POST /?query=INSERT%20INTO%20net.flows%20",
        "sourceAddress",
        "insert_deduplication_token=test-7-2",
        "async_insert=0",
        "deduplicate_blocks_in_dependent_materialized_views=1",
        "x-clickhouse-user: me",
    ] {
        assert!(head.contains(part), "{part}: {head}");
    }
}

#[test]
fn a_server_that_wrote_a_part_is_not_believed() {
    let summary = "x-clickhouse-summary: {\"written_rows\":\"3\"}\r\n";
    let (url, serving) = server(vec![answer("200 OK", summary, "")]);
    let mut block = block(0, b"block");
    block.rows = 5;
    let outcome = target(vec![base(&url)], false, false).deliver(&block);
    assert_eq!(outcome, Outcome::Refused("the server wrote 3 of 5 rows".to_owned()));
    assert!(serving.join().is_ok());
}

#[test]
fn a_table_that_lacks_columns_is_told_at_the_start() {
    let check = |answers: Vec<Vec<u8>>| {
        let (url, serving) = server(answers);
        let checked = target(vec![base(&url)], false, false).check().map_err(|error| error.to_string());
        (checked, serving.join().expect("it serves"))
    };
    let whole = "octetDeltaCount\tUInt64\t\t\nsourceAddress\tIPv6\t\t\nnote\tString\t\t\n";
    let (checked, calls) = check(vec![answer("200 OK", "", whole)]);
    assert_eq!(checked, Ok(()));
    assert!(calls[0].0.starts_with("POST /?query=DESCRIBE%20TABLE%20net.flows"), "{}", calls[0].0);
    let (checked, _) = check(vec![answer("200 OK", "", "octetDeltaCount\tUInt32\t\t\n")]);
    assert!(checked.expect_err("it lacks one").contains("has no column sourceAddress: add them"));
    let (checked, _) = check(vec![answer("404 Not Found", "", "Code: 60. DB::Exception: no table")]);
    assert!(checked.expect_err("there is none").contains("add create=yes"));
    let (checked, _) = check(vec![answer("403 Forbidden", "", "Code: 516. DB::Exception: me: no")]);
    assert!(checked.expect_err("a wrong password").contains("refuses the user"));
    // A server that is full now may have room later; one that is away may come.
    assert_eq!(check(vec![answer("500 Error", "", "Code: 252. DB::Exception: parts")]).0, Ok(()));
    let gone = std::net::TcpListener::bind("127.0.0.2:0").expect("a port");
    let away = format!("http://{}", gone.local_addr().expect("it is bound"));
    drop(gone);
    assert!(target(vec![away], false, false).check().is_ok());
}

#[test]
fn the_next_endpoint_is_asked_when_one_is_away() {
    let gone = std::net::TcpListener::bind("127.0.0.2:0").expect("a port");
    let away = format!("http://{}", gone.local_addr().expect("it is bound"));
    drop(gone);
    let (url, serving) = server(vec![answer("200 OK", "", ""), answer("200 OK", "", "")]);
    let mut target = target(vec![away, base(&url)], true, true);
    assert!(matches!(target.deliver(&block(0, b"block")), Outcome::Again(_)));
    assert_eq!(target.deliver(&block(0, b"block")), Outcome::Delivered);
    let calls = serving.join().expect("it serves");
    let statement = String::from_utf8_lossy(&calls[0].1).into_owned();
    assert!(statement.starts_with("CREATE TABLE IF NOT EXISTS net.flows"), "{statement}");
    assert!(!calls[1].0.contains("insert_deduplication_token"), "{}", calls[1].0);
}
