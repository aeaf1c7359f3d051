//! Both sides in one process, over real memory files: each property of the ring by itself.

mod end_to_end;
