//! The page's script: its modules in one file, so that a browser waits for one answer in place of seven. `start.mjs` is
//! a file of its own: its request is on the way while the browser reads the others.
//!
//! ```text
//! import { a } from "/x.mjs";      const { a } = modules["/x.mjs"];
//! export const a = 1;              const a = 1;                         return { a };
//! export { x as a };                                                    return { a: x };
//! export default x;                return x;
//! // a comment
//! ```

use std::sync::LazyLock;

type Module = (&'static str, &'static str);

/// The module that is a file of its own.
const START: &str = "/start.mjs";
/// Modules in the order in which they run: each after those that it imports.
const MODULES: [Module; 7] = [
    ("/vendor/preact.mjs", include_str!("../assets/vendor/preact/preact.mjs")),
    ("/vendor/htm.mjs", include_str!("../assets/vendor/htm/htm.mjs")),
    ("/show.mjs", include_str!("../assets/show.mjs")),
    ("/table.mjs", include_str!("../assets/table.mjs")),
    ("/charts.mjs", include_str!("../assets/charts.mjs")),
    ("/pages.mjs", include_str!("../assets/pages.mjs")),
    ("/app.mjs", include_str!("../assets/app.mjs")),
];

/// The script.
pub(crate) static PAGE: LazyLock<String> = LazyLock::new(|| {
    let bodies =
        MODULES.map(|(path, text)| format!("modules[\"{path}\"] = (() => {{\n{}\n}})();\n", body(text)));
    let start = format!("import * as start from \"{START}\";\nconst modules = {{ \"{START}\": start }};\n");
    start + &bodies.concat()
});

/// A module as the body of a function that returns its exports.
fn body(text: &str) -> String {
    let (text, list) = text.rsplit_once("export{").unwrap_or((text, ""));
    let renamed = list.trim_end().trim_end_matches(['}', ';']).split(',');
    let mut names: Vec<String> = renamed
        .filter_map(|pair| pair.split_once(" as "))
        .map(|(from, to)| format!("{to}: {from}"))
        .collect();
    let mut lines = Vec::new();
    let text = text.replace("export default ", "return ");
    for line in text.lines().filter(|line| !is_comment(line)) {
        lines.push(
            if let Some((names, path)) =
                line.strip_prefix("import ").and_then(|rest| rest.split_once(" from "))
            {
                format!("const {names} = modules[{}];", path.trim_end_matches(';'))
            } else if let Some(declared) = line.strip_prefix("export ") {
                names.extend(name(declared));
                declared.to_owned()
            } else {
                line.to_owned()
            },
        );
    }
    if !names.is_empty() {
        lines.push(format!("return {{ {} }};", names.join(", ")));
    }
    lines.join("\n")
}

fn is_comment(line: &str) -> bool {
    ["//", "/**", "* ", "*/"].iter().any(|begin| line.trim_start().starts_with(begin))
}

/// The name that a declaration declares.
fn name(declaration: &str) -> Option<String> {
    const KINDS: [&str; 6] = ["", "async", "class", "const", "function", "let"];
    let mut words = declaration.split(|of: char| !of.is_alphanumeric() && of != '_' && of != '$');
    words.find(|word| !KINDS.contains(word)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_become_what_a_function_returns() {
        let module =
            "import { h } from \"/x.mjs\";\nexport const a = 1, b = 2;\nexport async function c() {}";
        assert_eq!(
            body(module),
            "const { h } = modules[\"/x.mjs\"];\nconst a = 1, b = 2;\nasync function c() {}\nreturn { a, c };"
        );
        assert_eq!(body("const x=1;export{x as y,x as z};\n"), "const x=1;\nreturn { y: x, z: x };");
        assert_eq!(body("var x=1;export default x"), "var x=1;return x");
    }

    #[test]
    fn modules_run_after_those_that_they_import() {
        for (place, (path, text)) in MODULES.iter().enumerate() {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let mut before = MODULES[..place].iter().map(|(path, _)| *path).chain([START]);
                assert!(before.any(|known| line.ends_with(&format!("from \"{known}\";"))), "{path}: {line}");
            }
        }
        assert!(
            PAGE.lines().skip(1).all(|line| !line.starts_with("import ") && !line.starts_with("export "))
        );
    }
}
