//! Label and field selectors: parsing with upstream's grammar, matching objects, and formatting.

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
