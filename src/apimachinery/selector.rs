//! Label and field selectors: upstream's grammar, matching, and rendering back.

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
