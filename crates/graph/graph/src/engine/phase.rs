//! The phases of a run.
//!
//! ```text
//!            pause                          stop                    stop, again: stays
//! running ----------> paused      any ---------------> stopping     pause, resume: refused
//!    ^                  |  live packets are counted as of a pause, files are not read on
//!    +------resume------+
//! ```

use std::fmt;

use tapline_packet::Timestamp;

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Packets go through the graph.
    Running {
        /// The end of the last pause: live packets before it belong to that.
        since: Option<Timestamp>,
    },
    /// Packets go nowhere.
    Paused,
    /// The run ends.
    Stopping,
}

/// An order to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Requests a pause.
    Pause,
    /// To go on, at this time.
    Resume(Timestamp),
    /// To end.
    Stop,
}

/// An order that has no way from the phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderRefused {
    /// A pause of a run that is paused.
    IsPaused,
    /// The end of a pause that there is not.
    IsRunning,
    /// The run ends or has ended.
    IsStopping,
}

impl fmt::Display for OrderRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OrderRefused::IsPaused => "it is paused already",
            OrderRefused::IsRunning => "it is not paused",
            OrderRefused::IsStopping => "it has come to its end",
        })
    }
}

impl Phase {
    /// The phase after an order.
    ///
    /// # Errors
    /// There is no such way from here; the phase stays.
    pub(super) fn after(self, order: Order) -> Result<Phase, OrderRefused> {
        match (self, order) {
            (_, Order::Stop) => Ok(Phase::Stopping),
            (Phase::Running { .. }, Order::Pause) => Ok(Phase::Paused),
            (Phase::Paused, Order::Resume(now)) => Ok(Phase::Running { since: Some(now) }),
            (Phase::Paused, Order::Pause) => Err(OrderRefused::IsPaused),
            (Phase::Running { .. }, Order::Resume(_)) => Err(OrderRefused::IsRunning),
            (Phase::Stopping, Order::Pause | Order::Resume(_)) => Err(OrderRefused::IsStopping),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_in_every_phase() {
        let now = Timestamp::from_nanos(7);
        let [fresh, again] = [None, Some(now)].map(|since| Phase::Running { since });
        let orders = [Order::Pause, Order::Resume(now), Order::Stop];
        let table = [
            (fresh, [Ok(Phase::Paused), Err(OrderRefused::IsRunning), Ok(Phase::Stopping)]),
            (again, [Ok(Phase::Paused), Err(OrderRefused::IsRunning), Ok(Phase::Stopping)]),
            (Phase::Paused, [Err(OrderRefused::IsPaused), Ok(again), Ok(Phase::Stopping)]),
            (
                Phase::Stopping,
                [Err(OrderRefused::IsStopping), Err(OrderRefused::IsStopping), Ok(Phase::Stopping)],
            ),
        ];
        for (phase, expected) in table {
            for (order, expected) in orders.into_iter().zip(expected) {
                assert_eq!(phase.after(order), expected, "{order:?} in {phase:?}");
            }
        }
    }
}
