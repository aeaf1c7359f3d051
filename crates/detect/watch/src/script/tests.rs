//! Scripts that use up all they can: each call ends, within its stack, memory and time.

use std::time::Duration;

use tapline_sys::heap::{self, CountingHeap};
use tapline_sys::usage;

use super::*;
use crate::limit::Limit;

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

fn load(text: &str) -> Result<Script, String> {
    load_with(text, 1_000_000)
}

fn load_with(text: &str, operations: u64) -> Result<Script, String> {
    load_within(text, operations, CallBudget::new(operations))
}

fn load_within(text: &str, operations: u64, budget: CallBudget) -> Result<Script, String> {
    let entry = ScriptEntry {
        name: "s".to_owned(),
        line: 1,
        file: "s.rhai".to_owned(),
        limit: Limit::default(),
        actions: Default::default(),
        is_off: false,
    };
    Script::load_for(&entry, 0, text.to_owned(), operations, budget, None)
}

/// Processor time of a call here: without optimisation most calls end by it, whatever it is.
const TIME_NS: u64 = 100_000_000;

/// The fault that a call of `f` gave, and the bytes that stay.
fn call(text: &str) -> (String, isize) {
    let whole = format!("on_timer(\"1s\", \"f\");\n{text}");
    let budget = CallBudget::of_time(TIME_NS);
    let mut script = load_within(&whole, 300_000, budget).unwrap_or_else(|why| panic!("{text}: {why}"));
    let mut out = Outbox::empty();
    let (memory, time) = (heap::taken(), usage::thread_time());
    script.call(0, 1, None, None, &mut out);
    let time = usage::thread_time() - time;
    assert!(time < Duration::from_secs(20), "{text}: {time:?} of processor time");
    (out.faults.join("; "), heap::taken() - memory)
}

fn with_stack(len: usize, test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(len).spawn(test).unwrap().join().unwrap();
}

/// Bytes of stack of all threads but those that call scripts.
const USUAL_STACK: usize = 2 << 20;

#[test]
fn values_within_values_fit_the_stack() {
    with_stack(STACK_LEN, || {
        for body in [
            "let a = []; loop { a = [a]; }",
            "let a = [0]; loop { let b = [0]; b[0] = a; a = b; }",
            "let a = []; loop { let b = []; b.push(a); a = b; }",
            "let a = []; loop { let b = []; b += [a]; a = b; }",
            "let a = []; loop { let b = []; b.insert(0, a); a = b; }",
            "let a = [0]; loop { let b = [0]; b.set(0, a); a = b; }",
            "let a = #{}; loop { a = #{x: a}; }",
            "let a = #{}; loop { let b = #{}; b.x = a; a = b; }",
            "let a = #{}; loop { let b = #{}; b[\"x\"] = a; a = b; }",
            "let a = #{}; loop { let b = #{x: [0]}; b.x[0] = a; a = b; }",
            "let a = #{}; loop { let b = #{x: #{}}; b.x.y = a; a = b; }",
            "let a = #{}; loop { let b = #{}; b.set(\"x\", a); a = b; }",
            "let a = []; loop { a = #{x: [a]}; }",
            "let a = []; for i in 0..100000 { a = [a]; set(\"t\", \"k\", a); }",
            "let a = []; for i in 0..100000 { a = [get(\"t\", \"k\")]; set(\"t\", \"k\", a); }",
            "let a = [0]; loop { let b = a; b[0] = a; a = b; }",
            "let a = []; for i in 0..4900 { a = #{x: [a]}; } let b = a; b == a; a.to_string(); print(a); throw a;",
            "let a = []; for i in 0..9900 { a = [a]; } let b = [a]; b.sort(); b.dedup(); [a] + [a]; debug(a); tell(`x`, #{a: a}); throw a;",
        ] {
            let (fault, _) = call(&format!("fn f() {{ {body} }}"));
            assert_ne!(fault, "", "{body}");
            eprintln!("{body}: {fault}");
        }
    });
}

/// As deep as the bounds of arrays and maps allow; Rhai measures a value after each step, which takes longer than a call
/// may in a build without optimisation.
#[test]
fn the_deepest_value_fits_the_stack() {
    with_stack(STACK_LEN, || {
        let mut value = Dynamic::UNIT;
        for _ in 0..ELEMENTS_MAX {
            value = rhai::Map::from([("x".into(), rhai::Array::from([value]).into())]).into();
        }
        assert!(value.clone().to_string().len() > 2 * ELEMENTS_MAX);
        assert_eq!(convert::kept_len(&value), None);
        assert!(!convert::to_json(&value).is_null());
    });
}

#[test]
fn calls_and_expressions_fit_the_stack() {
    with_stack(USUAL_STACK, || {
        let deep = |open: &str, close: &str| format!("{}f(){}", open.repeat(6), close.repeat(6));
        for (open, close) in
            [("(1+", ")"), ("[", "]"), ("#{x: ", "}"), ("-(", ")"), ("{", "}"), ("if true {", "}")]
        {
            let (fault, _) = call(&format!("fn f() {{ let a = {}; a }}", deep(open, close)));
            assert_ne!(fault, "", "{open}");
        }
        let (fault, _) = call("fn f() { let a = [1]; a.map(|x| f()) }");
        assert_ne!(fault, "");
    });
}

#[test]
fn code_within_code_fits_the_stack() {
    with_stack(USUAL_STACK, || {
        let many = 100_000;
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{", "}"),
            ("#{x:", "}"),
            ("!", ""),
            ("-", ""),
            ("1+(", ")"),
            ("if x {", "}"),
            ("if x {} else ", ""),
            ("while x {", "}"),
            ("`${", "}`"),
            ("|x| ", ""),
            ("switch x { 1 => ", "}"),
            ("a.", ""),
            ("a[0].", ""),
            ("a(", ")"),
            ("a?.", ""),
            ("a ?? ", ""),
            ("a && ", ""),
            ("1 + ", ""),
            ("2 ** ", ""),
            ("try {", "} catch {}"),
            ("do {", "} while x"),
            ("for x in ", ""),
            ("/*", "*/"),
            ("return ", ""),
            ("throw ", ""),
            ("let x = ", ""),
            ("x = ", ""),
            ("fn g() {", "}"),
        ] {
            let text = format!("fn f() {{ {}1{} }}", open.repeat(many), close.repeat(many));
            assert!(load(&text).is_err(), "{open}");
        }
        // Chains that are not nested in the text.
        for chain in [".len()", "[0]", "()", "?.x", "; 1", " else if x {}", ".x", "?[0]"] {
            let _ = load(&format!("fn f() {{ if x {{}} 1{} }}", chain.repeat(many)));
            let _ = load(&format!("fn f() {{ a{} }}", chain.repeat(many)));
        }
        let _ = load(&format!("fn f() {{ if x {{}} {} }}", " else if x {}".repeat(many / 2)));
        let _ = load(&format!("fn f() {{ switch x {{ {} }} }}", "_ if x => 1, ".repeat(many / 2)));
    });
}

#[test]
fn a_call_has_a_bound_of_memory() {
    const SLACK: isize = 4 << 20;
    let text = "let s = `x`; for i in 0..15 { s += s; }"; // 32 KB
    for (code, left) in [
        (format!("fn f() {{ {text} s.replace(\"x\", s); }}"), 0),
        (format!("fn f() {{ {text} s.replace('x', s); }}"), 0),
        (format!("fn f() {{ {text} for i in 0..100000 {{ set(\"t\", i, s + i); }} }}"), budget::MEMORY_MAX as isize),
        (
            format!("{} fn f() {{ {text} for i in 0..100000 {{ record(\"l\", s + i); }} }}", "recorder(\"l\", \"list\", #{columns: [\"x\"]});"),
            budget::MEMORY_MAX as isize,
        ),
        (
            format!("{} fn f() {{ {text} for i in 0..100000 {{ record(\"l\", s + i); }} }}", "recorder(\"l\", \"top\", #{});"),
            budget::MEMORY_MAX as isize,
        ),
        (format!("fn f() {{ {text} for i in 0..100 {{ tell(`x`, #{{a: s + i}}); print(s + i); }} }}"), 1 << 20),
        ("fn f() { let a = []; a.pad(9999, 1); g(0, a) } fn g(n, a) { let b = a; let c = a; let d = a; g(n + 1, b) }".to_owned(), 0),
        (format!("fn f() {{ let a = []; a.pad(9999, 1); let b = [{}]; }}", "g(a),".repeat(5000)) + "fn g(a) { || a }", 0),
        (format!("fn f() {{ let a = []; a.pad(9999, 1); g({}) }} fn g(a) {{ a }}", vec!["a"; 200].join(",")), 0),
        ("fn f() { let a = Fn(\"f\"); loop { a = a.curry(a); } }".to_owned(), 0),
        ("fn f() { let a = []; let b = || a; a.push(b); }".to_owned(), 0),
        ("const A = \"0123456789abcdef\"; const B = A + A + A + A; const C = B + B + B + B; const D = C + C + C + C; const E = D + D + D + D; const F = E + E + E + E; const G = F + F + F + F; const H = G + G + G + G; fn f() { H }".to_owned(), 0),
    ] {
        let before = heap::taken();
        match load(&format!("on_timer(\"1s\", \"f\");\n{code}")) {
            Err(why) => eprintln!("{code:.80}: {why}"),
            Ok(mut script) => {
                let mut out = Outbox::empty();
                script.call(0, 1, None, None, &mut out);
                eprintln!("{code:.80}: {:?}", out.faults.first());
                let grown = heap::taken() - before;
                assert!(grown <= left + SLACK, "{code}: {grown} bytes stay");
            }
        }
    }
}

/// Calls that each take little fill tables as far as a script may, and no further.
#[test]
fn tables_have_a_bound_of_memory() {
    let mut script = load(
        "table(\"t\", #{max: 1000000}); on_timer(\"1s\", \"f\");
         fn f() { let s = `x`; for i in 0..15 { s += s; } for i in 0..1000 { set(\"t\", add(\"n\", 1, 1), s + i); } }",
    )
    .unwrap();
    let mut out = Outbox::empty();
    let before = heap::taken();
    (0..30).for_each(|_| script.call(0, 1, None, None, &mut out));
    let grown = heap::taken() - before;
    assert!((200 << 20..512 << 20).contains(&grown), "{grown} bytes");
    assert!(script.counts().no_room > 20_000 && out.faults.is_empty(), "{:?}", out.faults);
}

#[test]
fn a_call_has_a_bound_of_time() {
    for body in [
        "sleep(100);",
        "sleep(1e9);",
        "for i in 0..2000 { set(\"t\", i, i); } loop { keys(\"t\"); }",
        "let a = []; for i in 0..9999 { a.push((i * 7919) % 10007); } loop { let b = a; b.sort(); }",
        "let s = `x`; for i in 0..15 { s += s; } loop { s.index_of(\"xxxxy\"); }",
        "let s = `x`; for i in 0..15 { s += s; } loop { s.to_upper() == s.to_lower(); }",
        "let a = []; a.pad(9999, 1); loop { a.index_of(2); }",
        "let a = []; a.pad(9999, 1); loop { a == a; }",
        "let a = []; a.pad(9999, 1); loop { a.dedup(); a.pad(9999, 1); }",
        "let a = #{}; for i in 0..5000 { a[`${i}`] = 1; } loop { let b = a; b.mixin(a); }",
    ] {
        let (fault, _) = call(&format!("table(\"t\", #{{max: 1000000}}); fn f() {{ {body} }}"));
        assert_ne!(fault, "", "{body}");
        eprintln!("{body}: {fault}");
    }
}

#[test]
fn a_script_that_is_always_late_is_called_no_more() {
    let code =
        "on_timer(\"1s\", \"f\"); fn f() { let s = `x`; for i in 0..15 { s += s; } loop { s.to_upper(); } }";
    let mut script = load_with(code, 1_000_000_000).unwrap();
    let mut out = Outbox::empty();
    script.late = LATE_MAX - 1;
    script.budget = Arc::new(CallBudget::new(1));
    let budget = Arc::clone(&script.budget);
    script.engine.on_progress(move |operations| budget.excess(operations).map(Dynamic::from));
    (0..100).for_each(|_| script.call(0, 1, None, None, &mut out));
    assert_eq!((script.late, script.faults, script.calls), (LATE_MAX, 100, 100));
    assert!(out.faults.last().unwrap().contains("called no more"), "{:?}", out.faults);
}
