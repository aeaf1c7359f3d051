//! The content of the pages of a view: the same figures for the browser and the terminal.
//!
//! ```text
//! PID.view, PID.meters --Feed, once a second--> Snapshot --PageRequest::answer--> Answer: what every page shows, and
//!                                                  FilterLine, Rights --^           Content: the page
//! ```
//!
//! An [`Answer`] is serialised for the browser, and for `tapline top --json`; the screen of `tapline top` draws it. Its
//! tables add up: rows, others and the rest are the interface.
#![forbid(unsafe_code)]

mod answer;
mod feed;
mod filter_line;
mod fitting;
mod forgiving;
mod names;
mod past;
mod rights;
mod stack;
mod tables;
mod watched;
mod words;

pub use answer::{
    Answer, Content, Costs, Directions, Page, PageRequest, ProcessWords, Series, StageWords, Totals,
};
pub use feed::{Feed, SECONDS_MAX, Snapshot, WINDOW_MAX, second_without_rows};
pub use filter_line::FilterLine;
pub use fitting::{Fitting, FittingPart};
pub use names::HostNames;
pub use past::PastWindow;
pub use rights::Rights;
pub use stack::{Layer, Stack, StackPoint, StackRow};
pub use tables::{HostChart, HostContent, PartTable, Side, SumRow, SumTable};
pub use watched::{EventFile, EventLine, RecorderTable, WatchEvent, Watched};
pub use words::KeyWords;
