//! [`Options`]: which rules about the schema of a definition are enforced.

/// The rules that are enforced. An update does not enforce one that the stored definition violates already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The schema must be structural.
    pub structural: bool,
    /// Types must be those of OpenAPI.
    pub valid_types: bool,
    /// Defaults must not have unknown fields.
    pub pruned_defaults: bool,
    /// Items of sets must be atomic.
    pub atomic_sets: bool,
    /// Keys of lists of type map must be required or have a default, and neither they nor items of maps and
    /// sets may be nullable.
    pub map_keys: bool,
    /// No rule may cost more than the limit for one. The limit for all is always enforced.
    pub rule_costs: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            structural: true,
            valid_types: true,
            pruned_defaults: true,
            atomic_sets: true,
            map_keys: true,
            rule_costs: true,
        }
    }
}
