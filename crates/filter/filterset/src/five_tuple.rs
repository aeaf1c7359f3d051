//! Filters for one direction of one flow, made without compiling a text for each.
//!
//! A text with an example flow is compiled once for each IP version and transport; the filter of a flow is that one
//! with the flow's constants in it. So it equals the compiled text of the flow.

use std::net::IpAddr;

use tapline_packet::FiveTuple;

use super::filter::{ConstantError, Filter};
use tapline_filter::Options;
use tapline_syntax::Error;

/// The transports that have ports: TCP, UDP, SCTP.
const TRANSPORTS: [u8; 3] = [6, 17, 132];

/// Makes filters of five-tuples for one link type.
#[derive(Debug)]
pub struct FiveTuples {
    /// For IPv4 and IPv6, each transport in order.
    examples: [Vec<Example>; 2],
}

/// A compiled text, and the places of its constants.
#[derive(Debug)]
struct Example {
    filter: Filter,
    /// Index of the constant, and which number of the flow goes there.
    places: Vec<(usize, usize)>,
}

/// Numbers of a flow: the words of both addresses, and the ports.
type Numbers = [u32; 10];

impl FiveTuples {
    /// Compiles the examples.
    ///
    /// # Errors
    /// If the link type carries no IP, or finding its IP header takes computing (802.11, tunnels).
    pub fn new(options: &Options) -> Result<FiveTuples, Error> {
        Ok(FiveTuples { examples: [examples(true, options)?, examples(false, options)?] })
    }

    /// The filter of a flow: equal to its compiled text.
    ///
    /// # Errors
    /// [`ConstantError`] if the addresses are of different IP versions or the protocol has no ports; then there is no
    /// such text.
    pub fn filter(&self, flow: &FiveTuple) -> Result<Filter, ConstantError> {
        let transport = TRANSPORTS.iter().position(|number| *number == flow.protocol);
        let version = usize::from(flow.src.is_ipv6());
        let alike = flow.src.is_ipv4() == flow.dst.is_ipv4();
        let example = transport.filter(|_| alike).and_then(|at| self.examples[version].get(at));
        let example = example.ok_or(ConstantError::NoSuchConstant(0))?;
        let numbers = numbers(flow);
        let changes: Vec<(usize, u32)> =
            example.places.iter().map(|(constant, number)| (*constant, numbers[*number])).collect();
        example.filter.with(&changes)
    }
}

fn examples(is_v4: bool, options: &Options) -> Result<Vec<Example>, Error> {
    TRANSPORTS.iter().map(|protocol| example(*protocol, is_v4, options)).collect()
}

fn example(protocol: u8, is_v4: bool, options: &Options) -> Result<Example, Error> {
    // All words of the addresses and both ports are different numbers.
    let (src, dst): (IpAddr, IpAddr) = if is_v4 {
        ([192, 0, 2, 1].into(), [192, 0, 2, 2].into())
    } else {
        ([0x2001, 0xdb8, 1, 2, 3, 4, 5, 6].into(), [0x2001, 0xdb9, 7, 8, 9, 10, 11, 12].into())
    };
    let flow = FiveTuple { src, dst, protocol, src_port: 40_001, dst_port: 40_002 };
    let filter = Filter::compile(&flow.to_string(), options)?;
    let numbers = numbers(&flow);
    let place = |(at, value)| Some((at, numbers.iter().position(|number| *number == value && value != 0)?));
    let places: Vec<(usize, usize)> =
        filter.constants().iter().map(|constant| constant.value).enumerate().filter_map(place).collect();
    if let Err(reason) = filter.with(&[]) {
        return Err(Error::whole("five-tuples cannot be filed on this link type").hint(reason.to_string()));
    }
    Ok(Example { filter, places })
}

fn numbers(flow: &FiveTuple) -> Numbers {
    let mut numbers = [0; 10];
    words(flow.src, &mut numbers[..4]);
    words(flow.dst, &mut numbers[4..8]);
    (numbers[8], numbers[9]) = (flow.src_port.into(), flow.dst_port.into());
    numbers
}

fn words(address: IpAddr, words: &mut [u32]) {
    match address {
        IpAddr::V4(address) => words[0] = address.into(),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            words.iter_mut().enumerate().for_each(|(at, word)| *word = (bits >> (96 - 32 * at)) as u32);
        }
    }
}
