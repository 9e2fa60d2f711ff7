//! [`Counts`]: the number of changes in a plan, for the metrics.

use super::MAX;
use std::ops::AddAssign;

/// The changes that a plan makes to the endpoints of a Service, and the number of slices they fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// Endpoints that there should be.
    pub(crate) desired: usize,
    /// Slices that there will be.
    pub(crate) slices: usize,
    /// Slices that there would be if only the last of each group had room left.
    pub(crate) desired_slices: usize,
}

impl Counts {
    /// Counts a group of endpoints with equal ports.
    pub(crate) fn want(&mut self, endpoints: usize) {
        self.desired += endpoints;
        self.desired_slices += endpoints.div_ceil(MAX);
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
        self.desired += other.desired;
        self.slices += other.slices;
        self.desired_slices += other.desired_slices;
    }
}
