//! [`Budget`]: a cost limit that several evaluations share.

use crate::{Activation, Fail, PatternBudget, Program, Val};

/// Kubernetes' limit for one expression: about 0.1 s of kube-apiserver's time.
const EACH: u64 = 1_000_000;
/// Limit for all evaluations together on a thread that must not be blocked. Measured: 20 µs for loops, 200 µs
/// for `split` on long strings. [`PatternBudget`] bounds regular expressions.
const QUICK: u64 = 1_000;
/// Fixed cost of an evaluation, besides the steps of its expression.
const START: u64 = 5;

/// A cost limit that several evaluations share. Start with [`Budget::quick`] on a thread that must not be
/// blocked, and repeat the evaluations with [`Budget::full`] on another one if they turn out to be
/// [`Exceeded::Costly`].
///
/// ```
/// use torana_cel::{Budget, Environment, Exceeded, Variable};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let program = Environment::default().compile("lists.range(1000).all(i, i >= 0)")?;
/// let nothing: [Variable<'_>; 0] = [];
/// let quick = Budget::quick().evaluate(&program, &nothing);
/// assert!(quick.is_err_and(|why| why == Exceeded::Costly));
/// // Once more, on a thread that may be blocked.
/// assert!(Budget::full().evaluate(&program, &nothing).is_ok());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Budget {
    /// The cost that is left for all evaluations; `None` if each has [`EACH`].
    left: Option<u64>,
    patterns: PatternBudget,
}

/// Why an evaluation within a budget has no result.
#[derive(Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// The evaluations cost more than [`Budget::quick`] allows.
    Costly,
    /// The expression has an error, or costs more than Kubernetes allows.
    Failed(Fail),
}

impl Budget {
    /// A small limit for all evaluations together.
    pub fn quick() -> Self {
        Self {
            left: Some(QUICK),
            patterns: PatternBudget::quick(),
        }
    }

    /// Kubernetes' limit for each evaluation. They share the work on regular expressions.
    pub fn full() -> Self {
        Self {
            left: None,
            patterns: PatternBudget::full(),
        }
    }

    /// Evaluates a program.
    ///
    /// # Errors
    /// See [`Exceeded`].
    pub fn evaluate<'a>(&mut self, program: &'a Program, activation: &dyn Activation<'a>) -> Result<Val<'a>, Exceeded> {
        let outcome = program.evaluate_within(activation, self.left.unwrap_or(EACH), &self.patterns);
        // The cost of an evaluation is subtracted even if it fails, because it has taken the time.
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(outcome.cost.saturating_add(START));
        }
        outcome.value.map_err(|why| match (why, &self.left) {
            // Under the quick limit, running out says nothing about the expression; the caller evaluates it again
            // with the full limit.
            (Fail::Cost, Some(_)) => Exceeded::Costly,
            (why, _) => Exceeded::Failed(why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Environment, Variable};

    #[test]
    fn evaluations_share_the_quick_budget_but_not_the_full_one() {
        let of = |source: &str| Environment::default().compile(source).expect("well typed");
        let (cheap, loops) = (of("1 + 1 == 2"), of("lists.range(300).all(i, i >= 0)"));
        let nothing: &[Variable<'_>; 0] = &[];
        let mut quick = Budget::quick();
        assert!((0..10).all(|_| quick.evaluate(&cheap, nothing).is_ok()));
        assert!(matches!(quick.evaluate(&loops, nothing), Err(Exceeded::Costly)));
        assert!(matches!(quick.evaluate(&cheap, nothing), Err(Exceeded::Costly)));
        let mut full = Budget::full();
        assert!((0..10).all(|_| full.evaluate(&loops, nothing).is_ok()));
        let hopeless = of("lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))");
        assert!(matches!(
            full.evaluate(&hopeless, nothing),
            Err(Exceeded::Failed(Fail::Cost))
        ));
    }
}
