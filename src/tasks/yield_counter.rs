//! [`YieldCounter`]: yields to other tasks in a loop whose next input is often available immediately. Such a loop never waits,
//! and would hold the reactor as long as a client, a peer or a store supplies input.

/// Counts the steps of a loop.
#[derive(Debug)]
pub(crate) struct YieldCounter {
    most: u32,
    steps: u32,
}

impl YieldCounter {
    /// Yields after every `most` steps.
    pub(crate) const fn of(most: u32) -> Self {
        Self { most, steps: 0 }
    }

    /// Counts a step, and yields after each `most` of them.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn step(&mut self) {
        self.steps += 1;
        if self.steps >= self.most {
            self.steps = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn every_nth_step_yields() {
        let mut yields = YieldCounter::of(3);
        let ready: Vec<bool> = (0..9).map(|_| yields.step().now_or_never().is_some()).collect();
        assert_eq!(ready, [true, true, false].repeat(3));
    }
}
