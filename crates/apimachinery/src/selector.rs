//! Label and field selectors: parsing with upstream's grammar, matching objects, and formatting.
//!
//! ```
//! use torana_apimachinery::json;
//! use torana_apimachinery::selector::{FieldSelector, LabelSelector};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}, "status": {"phase": "Running"}});
//!
//! let labels = LabelSelector::parse("app=web,tier in (front,back),!canary")?;
//! assert!(labels.matches_map(pod.at(&["metadata", "labels"])));
//! let labels = LabelSelector::from_object(&json!({"matchLabels": {"app": "db"}}))?;
//! assert!(!labels.matches_map(pod.at(&["metadata", "labels"])));
//!
//! let fields = FieldSelector::parse("status.phase!=Failed")?;
//! assert!(fields.matches(&|field| match field {
//!     "status.phase" => pod.at(&["status", "phase"]).as_str(),
//!     _ => None,
//! }));
//! # Ok(())
//! # }
//! ```

pub mod fields;
pub mod labels;

pub use fields::FieldSelector;
pub use labels::LabelSelector;
