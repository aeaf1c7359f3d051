//! Sources that wrap another source, and the methods that they delegate to it.

/// Implements the named methods of [`Source`](tapline_source::Source) by calls to the field `source`.
macro_rules! delegate_source {
    ($($method:ident)*) => { $(crate::delegate::delegate_source!(@ $method);)* };
    (@ interfaces) => {
        fn interfaces(&self) -> &[tapline_packet::Interface] {
            self.source.interfaces()
        }
    };
    (@ batch) => {
        fn batch(&self) -> tapline_packet::Batch<'_> {
            self.source.batch()
        }
    };
    (@ stop) => {
        fn stop(&mut self) -> Result<(), tapline_source::Error> {
            self.source.stop()
        }
    };
    (@ is_filtered) => {
        fn is_filtered(&self, interface: tapline_packet::InterfaceId) -> bool {
            self.source.is_filtered(interface)
        }
    };
    (@ account) => {
        fn account(&mut self) -> Vec<tapline_source::InterfaceAccount> {
            self.source.account()
        }
    };
    (@ uncaptured) => {
        fn uncaptured(&self) -> tapline_source::UncapturedCounts {
            self.source.uncaptured()
        }
    };
    (@ waited_ticks) => {
        fn waited_ticks(&self) -> u64 {
            self.source.waited_ticks()
        }
    };
    (@ events) => {
        fn events(&mut self) -> Vec<tapline_source::Event> {
            self.source.events()
        }
    };
    (@ preferred_wait) => {
        fn preferred_wait(&self) -> Option<std::time::Duration> {
            self.source.preferred_wait()
        }
    };
    (@ wakeup) => {
        fn wakeup(&self) -> Option<std::sync::Arc<tapline_sys::Wakeup>> {
            self.source.wakeup()
        }
    };
    (@ wait_on) => {
        fn wait_on(&self, poller: &mut tapline_sys::Poller) -> bool {
            self.source.wait_on(poller)
        }
    };
    (@ progress) => {
        fn progress(&self) -> Option<(u64, u64)> {
            self.source.progress()
        }
    };
}

pub(crate) use delegate_source;
