//! The files that the browser gets: compiled in, so that the page needs no network and no folder.

/// A file by its path, with its media type and content.
pub(crate) type Asset = (&'static str, &'static str, &'static [u8]);

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All files. Those in `vendor` are as their authors published them: `assets/vendor/SHA256SUMS`.
pub(crate) const ASSETS: [Asset; 12] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../assets/index.html")),
    ("/app.css", STYLE, include_bytes!("../assets/app.css")),
    ("/start.mjs", SCRIPT, include_bytes!("../assets/start.mjs")),
    ("/app.mjs", SCRIPT, include_bytes!("../assets/app.mjs")),
    ("/pages.mjs", SCRIPT, include_bytes!("../assets/pages.mjs")),
    ("/show.mjs", SCRIPT, include_bytes!("../assets/show.mjs")),
    ("/charts.mjs", SCRIPT, include_bytes!("../assets/charts.mjs")),
    ("/favicon.svg", "image/svg+xml", include_bytes!("../assets/favicon.svg")),
    ("/vendor/preact.mjs", SCRIPT, include_bytes!("../assets/vendor/preact/preact.mjs")),
    ("/vendor/htm.mjs", SCRIPT, include_bytes!("../assets/vendor/htm/htm.mjs")),
    ("/vendor/uPlot.js", SCRIPT, include_bytes!("../assets/vendor/uplot/uPlot.iife.min.js")),
    ("/vendor/uPlot.css", STYLE, include_bytes!("../assets/vendor/uplot/uPlot.min.css")),
];

/// The file of a path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|(known, ..)| *known == path)
}
