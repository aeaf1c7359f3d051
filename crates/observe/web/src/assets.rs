//! The files that the browser gets: compiled in, so that the page needs no network and no folder.

use hyper::body::Bytes;

use crate::bundle::PAGE;

/// A file by its path, with its media type and content.
type Asset = (&'static str, &'static str, &'static [u8]);

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// All files but the script. Those in `vendor` are as their authors published them: `assets/vendor/SHA256SUMS`.
const ASSETS: [Asset; 6] = [
    ("/", "text/html; charset=utf-8", include_bytes!("../assets/index.html")),
    ("/app.css", STYLE, include_bytes!("../assets/app.css")),
    ("/start.mjs", SCRIPT, include_bytes!("../assets/start.mjs")),
    ("/favicon.svg", "image/svg+xml", include_bytes!("../assets/favicon.svg")),
    ("/vendor/uPlot.js", SCRIPT, include_bytes!("../assets/vendor/uplot/uPlot.iife.min.js")),
    ("/vendor/uPlot.css", STYLE, include_bytes!("../assets/vendor/uplot/uPlot.min.css")),
];

/// The file of a path: its media type and content.
pub(crate) fn find(path: &str) -> Option<(&'static str, Bytes)> {
    if path == "/page.mjs" {
        return Some((SCRIPT, Bytes::from_static(PAGE.as_bytes())));
    }
    let (_, kind, content) = ASSETS.iter().find(|(known, ..)| *known == path)?;
    Some((kind, Bytes::from_static(content)))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    #[test]
    fn the_page_is_at_most_60_kb_gzipped() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let paths = ASSETS.iter().map(|(path, ..)| *path).chain(["/page.mjs"]);
        for (_, content) in paths.filter_map(find) {
            gzip.write_all(&content).expect("memory");
        }
        let len = gzip.finish().expect("memory").len();
        assert!(len <= 60_000, "{len} bytes");
    }
}
