//! The words that both sides share: mapped memory, or under loom a list of loom's atomics.

#[cfg(not(loom))]
pub(crate) use tapline_sys::{ReadWords, SharedWords as Words};

#[cfg(loom)]
pub(crate) use model::{ReadWords, Words};

#[cfg(loom)]
mod model {
    use std::ops::Deref;
    use std::sync::Arc;

    use crate::atomic::{AtomicU64, Relaxed};

    #[derive(Clone)]
    pub(crate) struct Words(Arc<[AtomicU64]>);

    pub(crate) struct ReadWords(Words);

    impl Words {
        pub(crate) fn private(words: usize) -> Words {
            Words((0..words).map(|_| AtomicU64::new(0)).collect())
        }

        pub(crate) fn to_read(&self) -> ReadWords {
            ReadWords(self.clone())
        }
    }

    impl Deref for Words {
        type Target = [AtomicU64];

        fn deref(&self) -> &[AtomicU64] {
            &self.0
        }
    }

    impl ReadWords {
        pub(crate) fn load(&self, index: usize) -> u64 {
            self.0[index].load(Relaxed)
        }
    }
}
