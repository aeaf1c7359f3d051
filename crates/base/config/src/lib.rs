//! Values of options from files, profiles and the environment, for any command line that clap describes.
//!
//! ```text
//! files of the machine < files of the user < profile < environment < command line
//!          │                  │                │            │
//!          └──────────────────┴───── Layers ───┴────────────┘
//!                                      │   an option that is typed, or conflicts with one that is, keeps its default
//!                                      ▼
//!                     clap::Command, with other defaults ──► parsed as ever
//! ```
//!
//! There is one list of options: a key of a file is the long name of an option, its table the command. So --help, man
//! pages, completions and files know the same options.
//!
//! ```toml
//! [capture]                      # tapline capture
//! snapshot-length = 96           # --snapshot-length 96
//! interface = ["eth0", "eth1"]   # --interface eth0 --interface eth1
//! n = 1                          # -n, which has no long name
//!
//! [store.list]                   # tapline store list
//! json = true
//!
//! [profile.dns]                  # any command, with --profile dns
//! filter = "udp port 53"
//! ```
#![forbid(unsafe_code)]

mod apply;
mod error;
mod layer;
mod options;
mod places;
mod suggestion;

pub use apply::{Effective, apply, defaults, effective, explicit};
pub use error::Error;
pub use layer::{Entry, Layers, Origin, read_bounded};
pub use options::{Scope, scopes, variable};
pub use places::Places;
pub use suggestion::nearest;
