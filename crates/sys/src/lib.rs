//! Every Linux call that Tapline makes, in small typed wrappers.
