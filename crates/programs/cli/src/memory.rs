//! `tapline memory`: the cells of an FPL program that runs, in a file of `--fpl-memory-file` or `fpl(memory=FILE)`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value, json};
use tapline_fpl_memory::{Order, Peer, Snapshot};
use tapline_sys::sandbox::{self, AllowedAccess};

use crate::mistakes::misuse;
use crate::privileges;

pub(crate) const EXAMPLES: &str = "\
Examples:
  tapline memory counts                    every cell that is not 0: index and value, all of one moment
  tapline memory counts --set 7=0          set a counter to 0 between two packets; prints its old value
  tapline memory counts --add 7=100 --json
  tapline memory counts --reset            all cells 0";

#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// The file of cells.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Set a cell, and print its old value.
    #[arg(long, value_name = "CELL=VALUE", value_parser = cell_and_value)]
    set: Vec<(u64, u64)>,
    /// Add to a cell, modulo 2^64, and print its old value.
    #[arg(long, value_name = "CELL=VALUE", value_parser = cell_and_value)]
    add: Vec<(u64, u64)>,
    /// Set all cells to 0, and print their sum before.
    #[arg(long)]
    reset: bool,
    /// Print one JSON object instead of text; values are text, as most readers of JSON round numbers above 2^53.
    #[arg(long)]
    json: bool,
}

fn cell_and_value(text: &str) -> Result<(u64, u64), String> {
    let pair = text.split_once('=').and_then(|(cell, value)| Some((cell.parse().ok()?, value.parse().ok()?)));
    pair.ok_or_else(|| format!("'{text}' is not a change of a cell: say CELL=VALUE, such as 7=0"))
}

/// Shows the cells, or changes some.
pub(crate) fn run(args: &MemoryArgs) -> Result<()> {
    let set = args.set.iter().map(|&(cell, value)| (cell.to_string(), Order::Set { cell, value }));
    let add = args.add.iter().map(|&(cell, value)| (cell.to_string(), Order::Add { cell, value }));
    let reset = args.reset.then_some(("all".to_owned(), Order::SetAll { value: 0 }));
    let orders: Vec<(String, Order)> = set.chain(add).chain(reset).collect();
    // Beside the file is one that those who change cells lock.
    let folder = sandbox::folder_of(&args.file).map(Path::to_owned).into_iter().collect();
    let (reads, makes) = if orders.is_empty() { (folder, Vec::new()) } else { (Vec::new(), folder) };
    privileges::confine_quietly(&AllowedAccess { reads, makes, ..AllowedAccess::default() });
    let text = if orders.is_empty() { shown(args)? } else { changed(args, &orders)? };
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn shown(args: &MemoryArgs) -> Result<String> {
    let peer = Peer::open(&args.file)?;
    let Snapshot { cells, is_consistent } = peer.snapshot()?;
    if !is_consistent {
        let _ = writeln!(
            io::stderr(),
            "tapline: the program never paused for long enough: the cells are of several moments"
        );
    }
    let used = cells.iter().enumerate().filter(|(_, value)| **value != 0);
    if args.json {
        let cells: Map<String, Value> =
            used.map(|(cell, value)| (cell.to_string(), value.to_string().into())).collect();
        let process = peer.process()?;
        let all =
            json!({"process": process, "cells": peer.len(), "is_consistent": is_consistent, "values": cells});
        return Ok(format!("{all}\n"));
    }
    Ok(used.fold(String::new(), |mut text, (cell, value)| {
        let _ = writeln!(text, "{cell}\t{value}");
        text
    }))
}

fn changed(args: &MemoryArgs, orders: &[(String, Order)]) -> Result<String> {
    let peer = Peer::open_to_change(&args.file)?;
    let (mut text, mut before) = (String::new(), Map::new());
    for (_, order) in orders {
        if let Order::Set { cell, .. } | Order::Add { cell, .. } = order
            && *cell >= peer.len()
        {
            misuse!("there is no cell {cell}: {} cells count from 0", peer.len());
        }
    }
    for (name, order) in orders {
        let old = peer.change(*order)?;
        before.insert(name.clone(), old.to_string().into());
        let _ = writeln!(text, "{name}\t{old}");
    }
    Ok(if args.json { format!("{}\n", json!({"before": before})) } else { text })
}
