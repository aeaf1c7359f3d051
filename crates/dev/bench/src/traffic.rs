//! Cost of generating a packet, batch by batch, in reused memory.
//!
//! ```text
//! recipe --> Batches::advance, over and over, for so long --> processor time of this thread / packets
//! peer       the same datagram built header by header, as the test kit does it: what a generator without templates costs
//! ```

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use clap::Args;
use tapline_generator::{Batches, Generator, Recipe};
use tapline_packet::Timestamp;
use tapline_sys::usage::thread_time;
use tapline_testkit::frames::{Ethernet, IpPair, Ipv4, Udp};

use tapline_measure::runs::median;

/// Recipes by default.
const RECIPES: &[&str] = &[
    "udp size=64",
    "udp size=64 flows=10k",
    "udp size=64 flows=10k mark",
    "udp size=64 flows=10k gaps=poisson rate=1M",
    "udp ip6 size=64 flows=10k",
    "tcp size=64 flows=10k",
    "udp size=1514 flows=10k",
    "udp size=1514 flows=10k payload=random",
    "udp size=imix flows=10k",
    "udp tcp size=64 flows=10k match='udp port 53' share=1/10",
];

/// Measurements of this part.
#[derive(Clone, Debug, Args)]
pub(crate) struct TrafficArgs {
    /// Recipes, each in one argument; by default some that differ in one thing each.
    #[arg(value_name = "RECIPE")]
    recipes: Vec<String>,
    /// Length of each run, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    time_ms: u64,
}

impl Default for TrafficArgs {
    fn default() -> TrafficArgs {
        TrafficArgs { recipes: Vec::new(), time_ms: 100 }
    }
}

/// Measures all in turns and prints the medians.
pub(crate) fn run(args: &TrafficArgs, runs: usize) -> anyhow::Result<()> {
    let recipes: Vec<&str> = match args.recipes.as_slice() {
        [] => RECIPES.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let mut makers = recipes.iter().map(|recipe| maker(recipe)).collect::<anyhow::Result<Vec<_>>>()?;
    check_peer()?;
    let time = Duration::from_millis(args.time_ms);
    let mut costs = vec![Vec::new(); makers.len() + 1];
    for round in 0..runs.max(1) {
        for turn in 0..costs.len() {
            let at = (turn + round) % costs.len();
            let cost = match makers.get_mut(at) {
                Some(batches) => spin(time, || advance(batches))?,
                None => spin(time, || Ok(build()))?,
            };
            costs[at].push(cost);
        }
    }
    let names = recipes.iter().copied().chain(["built header by header: udp size=64, one flow"]);
    println!("packets from recipes, medians of {} runs", runs.max(1));
    for (name, costs) in names.zip(&costs) {
        let ns = median(costs.iter().copied());
        println!("  {name:<58} {ns:>8.1} ns/packet {:>8.2} M/s", 1e3 / ns);
    }
    Ok(())
}

fn maker(recipe: &str) -> anyhow::Result<Batches> {
    let parsed = Recipe::parse(recipe).map_err(|error| anyhow!(error.render(recipe)))?;
    ensure!(!parsed.is_bounded(), "{recipe}: leave count and duration out");
    let generator = Generator::new(&parsed).map_err(|error| anyhow!(error.in_text(recipe).render(recipe)))?;
    Ok(Batches::new(generator, Timestamp::EPOCH))
}

/// Makes a batch and gives how many packets it has.
fn advance(batches: &mut Batches) -> anyhow::Result<u64> {
    ensure!(batches.advance()?, "a recipe without an end has ended");
    Ok(black_box(batches.batch()).len() as u64)
}

/// Builds 256 packets.
fn build() -> u64 {
    const PACKETS: u16 = 256;
    (0..PACKETS).for_each(|id| drop(black_box(built(id))));
    PACKETS.into()
}

fn built(id: u16) -> Vec<u8> {
    let (src, dst) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1));
    let datagram = Udp { src: 1024, dst: 9 }.datagram(IpPair::V4(src, dst), &[0; 22]);
    let packet = Ipv4 { id, ..Ipv4::new(src, dst, 17) }.packet(&datagram);
    Ethernet { dst: [2, 0, 0, 0, 0, 2], src: [2, 0, 0, 0, 0, 1] }.ip(&packet)
}

/// Both make the same.
fn check_peer() -> anyhow::Result<()> {
    let mut batches = maker(RECIPES[0])?;
    advance(&mut batches)?;
    for (id, packet) in batches.batch().iter().enumerate() {
        ensure!(
            packet.data == built(id as u16),
            "packet {id} differs from the one that is built header by header"
        );
    }
    Ok(())
}

/// Nanoseconds a packet.
fn spin(time: Duration, mut make: impl FnMut() -> anyhow::Result<u64>) -> anyhow::Result<f64> {
    let (start, before) = (Instant::now(), thread_time());
    let mut packets = 0;
    while packets == 0 || start.elapsed() < time {
        packets += make()?;
    }
    Ok((thread_time() - before).as_nanos() as f64 / packets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_measured_and_the_peer_agrees() {
        check_peer().expect("the same packets");
        for recipe in RECIPES {
            let mut batches = maker(recipe).expect("a recipe");
            assert!(advance(&mut batches).expect("packets") > 0, "{recipe}");
        }
        assert!(maker("udp count=3").is_err());
    }
}
