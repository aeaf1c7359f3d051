//! Plans that the planner makes of texts.

use tapline_graph::plan::{GraphText, Plan};

fn plan(texts: &[&str]) -> Plan {
    let names: Vec<String> = (0..texts.len()).map(|number| format!("g{number}")).collect();
    let sources: Vec<GraphText<'_>> =
        names.iter().zip(texts).map(|(name, text)| GraphText { name, text }).collect();
    Plan::new(tapline_stages::catalog(), &sources).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    Plan::new(tapline_stages::catalog(), &[GraphText { name: "g", text }]).expect_err("an error")
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.nodes.iter().map(|node| node.name.as_str()).collect()
}

#[test]
fn common_stages_of_graphs_run_once() {
    let plan = plan(&[
        "file(a) -> filter(\"tcp port 80\") -> sample(1/10) -> web :: count",
        "file(a) -> filter(\"tcp port 80\") -> sample(1/10) -> top; file(b) -> filter(\"tcp port 80\") -> drop",
    ]);
    let classes: Vec<&str> = plan.nodes.iter().map(|node| node.class.name).collect();
    assert_eq!(classes, ["file", "filter", "sample", "count", "file", "filter", "top", "drop"]);
    assert_eq!(
        plan.notes,
        ["g1/filter@2 is g0/filter@2: it runs once", "g1/sample@3 is g0/sample@3: it runs once"]
    );
    assert_eq!(plan.nodes[6].inputs, [(2, 0)]);
}

#[test]
fn arguments_count_not_how_they_are_written() {
    let plan =
        plan(&["file(a) -> sample(1/10) -> count", "file(name=a) -> sample(share=1/10, by=packet) -> count"]);
    assert_eq!(plan.nodes.len(), 3);
}

#[test]
fn the_kernel_runs_the_filter_behind_a_device() {
    let one = plan(&["device(lo) -> f :: filter(\"tcp\") -> count"]);
    assert_eq!(one.nodes[0].kernel_filter.as_deref(), Some("tcp"));
    assert!(one.nodes[1].is_filtered_upstream);
    let two = plan(&["d :: device(lo); d -> filter(\"tcp\") -> count; d -> filter(\"udp\") -> drop"]);
    assert_eq!(two.nodes[0].kernel_filter.as_deref(), Some("(tcp) or (udp)"));
    assert!(two.nodes.iter().all(|node| !node.is_filtered_upstream));
    let all = plan(&["d :: device(lo); d -> filter(\"tcp\") -> count; d -> top"]);
    assert_eq!(all.nodes[0].kernel_filter, None);
}

#[test]
fn many_filters_side_by_side_are_a_set() {
    let text = (0..12).fold("s :: file(a)".to_owned(), |text, port| {
        format!("{text}; s -> f{port} :: filter(\"tcp port {port}\") -> c{port} :: count")
    });
    let plan = plan(&[&text]);
    let set = plan.nodes.iter().position(|node| node.class.name == "filters").expect("a set");
    assert_eq!(plan.nodes[set].arguments.text("texts").lines().count(), 12);
    let filters: Vec<_> = plan.nodes.iter().filter(|node| node.class.name == "filter").collect();
    for (place, filter) in filters.iter().enumerate() {
        assert_eq!(
            (filter.inputs.as_slice(), filter.is_filtered_upstream),
            ([(set, place)].as_slice(), true)
        );
    }
    for (index, node) in plan.nodes.iter().enumerate() {
        assert!(node.inputs.iter().all(|(from, _)| *from < index), "{:?} in order", names(&plan));
    }
    for port in 0..12 {
        let named = |name: String| plan.nodes.iter().position(|node| node.name == name).expect("it is there");
        assert_eq!(plan.nodes[named(format!("c{port}"))].inputs, [(named(format!("f{port}")), 0)]);
    }
}

#[test]
fn errors_name_the_place_and_the_mend() {
    let cases = [
        ("file(a) -> cont", "did you mean `count`?"),
        ("count -> drop", "nothing leads to"),
        ("file(a) -> drop -> count", "is the end of a way"),
        ("file(a) -> file(b)", "is a source"),
        ("file(a) -> x :: count -> y :: tee -> x", "in a loop"),
        ("file(a) -> count[1] -> drop", "has no output [1]"),
        ("file(a) -> [1]count", "has no input [1]"),
        ("file(a) -> sample(1/0)", "is not allowed here"),
        ("file(a) -> sample(every=x)", "is not allowed here: time"),
        ("file(a) -> sample(1/2, packet, 1s, 3, here, 4)", "takes no more arguments"),
        ("file(a) -> sample(1/2, share=1/3)", "given twice"),
        ("file(a) -> sample(rate=3)", "has no argument `rate`"),
        ("file(a) -> filter(\"tcp prt 80\")", "prt"),
        ("file(a) -> filter", "needs `text`"),
        ("f :: file(a); f -> record(\"x\"); f -> count -> record(\"x\")", "writes to x already"),
        ("", "no source"),
    ];
    for (text, expected) in cases {
        let message = error(text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn a_drawing_names_every_stage() {
    let dot =
        plan(&["file(\"a b\") -> b :: balance; b[0] -> count; b[1] -> match(\"x\\\"y\") -> drop"]).dot();
    for part in ["file@1\\na b", "b :: balance", "label=\"1\"", "x\\\"y"] {
        assert!(dot.contains(part), "{part}: {dot}");
    }
}
