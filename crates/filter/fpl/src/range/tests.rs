use crate::{FplOptions, compile};

fn options() -> FplOptions {
    FplOptions { memory_cells: 64, packet_len_max: 1000, work_max: 100_000, ..FplOptions::default() }
}

fn ok(text: &str) -> u64 {
    compile(text, &options()).unwrap_or_else(|error| panic!("{}", crate::report(&error, text))).work
}

fn error(text: &str) -> String {
    compile(text, &options()).expect_err(text).message
}

#[test]
fn loops_with_a_proven_bound_compile() {
    for head in [
        "R[0] = 0; R[0] < 10; R[0]++",
        "R[0] = 0; R[0] <= 10; R[0] += 3",
        "R[0] = 10; R[0] > 0; R[0]--",
        "R[0] = 10; R[0] >= 3; R[0] -= 2",
        "R[0] = 0; R[0] != 10; R[0]++",
        "R[0] = 0; R[0] != 10; R[0] += 5",
        "R[0] = 10; R[0] != 0; R[0]--",
        "R[0] = 10; R[0] != PKT.B[0] + 10; R[0]++",
        "R[0] = 0; R[0] < PKT.LEN; R[0]++",
        "R[0] = PKT.DATA_START; R[0] < PKT.LEN; R[0]++",
        "R[0] = 0; R[0] < M[1] & 63; R[0]++",
        "R[0] = 0; R[0] < M[1] % 64; R[0]++",
        "R[0] = 0; R[0] < M[1] >> 60; R[0]++",
        "R[0] = 0; R[0] < PKT.W[0].U4[1] * 10; R[0] += (R[1] & 3) + 1",
        "R[0] = M[5]; R[0] < 10; R[0]++",
        "R[0] = 20; R[0] < 10; R[0]++",
        "R[0] = 0xffff_ffff_ffff_fff0; R[0] < 0xffff_ffff_ffff_ffff; R[0]++",
    ] {
        ok(&format!("FOR ({head}) R[2] += R[0]; ROF RETURN R[2];"));
    }
    ok("R[1] = M[0]; IF (R[1] < 50) THEN FOR (R[0] = 0; R[0] < R[1]; R[0]++) R[2]++; ROF FI");
    ok(
        "R[1] = M[0]; IF (R[1] > 50 || R[2] != 0) THEN RETURN 0; FI FOR (R[0] = 0; R[0] < R[1]; R[0]++) R[2]++; ROF",
    );
    ok("R[1] = M[0]; IF (!(50 >= R[1])) THEN R[1] = 4; FI FOR (R[0] = 0; R[0] < R[1]; R[0]++) R[2]++; ROF");
    ok(
        "FOR (R[0] = 0; R[0] < 9; R[0]++) R[1] = PKT.B[R[0]]; FOR (R[2] = 0; R[2] < R[1]; R[2]++) R[3]++; ROF ROF",
    );
}

#[test]
fn loops_without_a_bound_are_named() {
    for (head, message) in [
        (
            "R[0] = 0; R[0] < M[0]; R[0]++",
            "this loop cannot be bounded: it may take 18446744073709551615 rounds",
        ),
        (
            "R[0] = 0; R[0] <= M[0]; R[0]++",
            "this loop cannot be bounded: its end may be 18446744073709551615, and the step beyond it wraps to 0",
        ),
        (
            "R[0] = 9; R[0] >= 0; R[0]--",
            "this loop cannot be bounded: its end may be 0, and a step below it wraps",
        ),
        (
            "R[0] = 9; R[0] > 1; R[0] -= 3",
            "this loop cannot be bounded: its end may be 1, and a step below it wraps",
        ),
        ("R[0] = 0; R[0] < 10; R[0] += R[1] & 3", "this loop cannot be bounded: its step may be 0"),
        ("R[0] = 0; R[0] < 10; R[0]--", "this loop cannot be bounded: it counts away from its end"),
        ("R[0] = 0; R[0] > 10; R[0]++", "this loop cannot be bounded: it counts away from its end"),
        (
            "R[0] = 0; R[0] == 0; R[0]++",
            "this loop cannot be bounded: it continues while its register equals its end",
        ),
        (
            "R[0] = 0; R[0] != 10; R[0] += 3",
            "this loop cannot be bounded: its register may step over its end",
        ),
        ("R[0] = 5; R[0] != 0; R[0]++", "this loop cannot be bounded: its register may step over its end"),
        (
            "R[0] = R[1] & 7; R[0] != 5; R[0]++",
            "this loop cannot be bounded: its register may step over its end",
        ),
    ] {
        let text = format!(
            "FOR (R[2] = 0; R[2] < 3; R[2]++) R[1] = M[1]; ROF\nR[1] = M[2];\nFOR ({head}) R[3]++; ROF"
        );
        let error = compile(&text, &options()).expect_err(&text);
        assert_eq!(error.message, message, "{head}");
        assert_eq!(error.span.map(|span| &text[span.start..span.end]), Some(&*format!("FOR ({head})")));
    }
}

#[test]
fn registers_that_grow_in_loops_have_no_bound() {
    let text =
        "R[1] = 1; FOR (R[0] = 0; R[0] < 60; R[0]++) R[1] *= 2; ROF FOR (R[2] = 0; R[2] < R[1]; R[2]++) ROF";
    assert!(error(text).contains("cannot be bounded"));
    // In the second round, what the first one wrote counts.
    let text =
        "R[1] = 1; FOR (R[0] = 0; R[0] < 9; R[0]++) FOR (R[2] = 0; R[2] < R[1]; R[2]++) ROF R[1] = M[0]; ROF";
    assert!(error(text).contains("cannot be bounded"));
}

#[test]
fn work_is_limited_and_the_loop_named() {
    let one = ok("FOR (R[0] = 0; R[0] < 10; R[0]++) R[1] += PKT.B[R[0]]; ROF");
    let ten = ok(
        "FOR (R[2] = 0; R[2] < 10; R[2]++) FOR (R[0] = 0; R[0] < 10; R[0]++) R[1] += PKT.B[R[0]]; ROF ROF",
    );
    assert!(ten > 10 * (one - 2) && ten < 11 * one + 20, "{one} {ten}");
    let text =
        "FOR (R[0] = 0; R[0] < PKT.LEN; R[0]++)\n  FOR (R[1] = 0; R[1] < PKT.LEN; R[1]++) R[2]++; ROF\nROF";
    let error = compile(text, &options()).expect_err(text);
    assert!(error.message.starts_with("this loop of up to 1000 rounds may take"), "{}", error.message);
    assert_eq!(error.span.map(|span| span.start), Some(0));
    // Each loop is within the limit; both together are not.
    let big =
        |register| format!("FOR (R[{register}] = 0; R[{register}] < 9000; R[{register}]++) R[9]++; ROF\n");
    assert!(compile(&big(0), &options()).is_ok());
    let text = big(0) + &big(1);
    let error = compile(&text, &options()).expect_err(&text);
    assert!(error.message.starts_with("with all else that is done, this loop"), "{}", error.message);
    let hashes = "FOR (R[0] = 0; R[0] < 2000; R[0]++) R[1] ^= HASH(0, PKT.LEN, 7); ROF";
    assert!(compile(hashes, &options()).is_err());
}

#[test]
fn deep_nesting_does_not_take_exponential_time() {
    let mut text = String::new();
    for number in 0..30 {
        text += &format!("FOR (R[{number}] = 0; R[{number}] < 1; R[{number}]++) ");
    }
    text += "R[31]++; ";
    text += &"ROF ".repeat(30);
    ok(&text);
}

#[test]
fn certain_accesses_out_of_bounds_are_errors() {
    for (text, message) in [
        ("M[64] = 1;", "there is no cell 64"),
        ("RETURN M[64 + (R[0] & 7)];", "there is no cell 64"),
        ("RETURN M[65 + PKT.B[0]];", "there is no cell at least 65"),
        ("RETURN M[-1];", "there is no cell 18446744073709551615"),
        ("FOR (R[0] = 64; R[0] < 70; R[0]++) M[R[0]] = 1; ROF", "there is no cell at least 64"),
        ("RETURN PKT.B[1000];", "this lies behind the end of every packet: byte 1000 and on"),
        ("RETURN PKT.DW[997];", "this lies behind the end of every packet: byte 997 and on"),
        ("RETURN HASH(0, 1001, 7);", "this lies behind the end of every packet: byte 0 and on"),
        ("R[0] = PKT.B[0] & 0; RETURN 5 / R[0];", "this always divides by 0"),
    ] {
        assert_eq!(error(text), message, "{text}");
    }
    ok("RETURN M[63] + M[PKT.B[0]] + PKT.DW[996] + HASH(0, 1000, 7) + HASH(M[0], M[1], M[2]);");
}

#[test]
fn a_functions_cells_must_lie_in_the_memory() {
    for (text, message) in [
        ("EXTERN(count, 0, 63);", "'count' writes 2 cells from M[63] on, and the memory has 64"),
        ("EXTERN(sample, 64, 0);", "'sample' reads 1 cells from M[64] on, and the memory has 64"),
        (
            "EXTERN(count, 0, R[1]);",
            "'count' writes 2 cells possibly from M[18446744073709551615] on, and the memory has 64",
        ),
        (
            "EXTERN(count, 0, PKT.B[0]);",
            "'count' writes 2 cells possibly from M[255] on, and the memory has 64",
        ),
        ("EXTERN(rtsp_ports, 0, 0);", "'rtsp_ports' writes 66 cells from M[0] on, and the memory has 64"),
    ] {
        let text = format!("R[1] = M[0];\n{text}");
        assert_eq!(error(&text), message, "{text}");
    }
    ok("EXTERN(count, 0, 62); EXTERN(count, 0, PKT.B[0] & 31); EXTERN(sample, 63, 63);");
    ok("R[1] = M[0]; IF (R[1] <= 62) THEN EXTERN(count, 0, R[1]); FI");
}
