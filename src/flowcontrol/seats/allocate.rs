//! The allocation rule behind borrowing (upstream's `conc_alloc.go`): everybody gets the same fraction of
//! their target, except where that is outside of their bounds.

/// A target of zero would make its owner's share undefined.
const MIN_TARGET: f64 = 0.001;
const EPSILON: f64 = 1e-7;

/// One party to the allocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Class {
    pub target: f64,
    pub lower: f64,
    pub upper: f64,
}

/// A solution.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Allocation {
    /// One value per class.
    pub allocated: Vec<f64>,
    /// Each class gets this fraction of its target, or the bound that is in the way.
    pub fraction: f64,
}

impl Class {
    fn target(&self) -> f64 {
        self.target.max(MIN_TARGET)
    }

    fn at(&self, fraction: f64) -> f64 {
        (fraction * self.target()).clamp(self.lower, self.upper)
    }
}

/// Divides `sum`. `None` if the bounds exclude that sum.
///
/// The sum of the shares is a continuous, piecewise linear and nondecreasing function of the fraction, with a
/// kink where a class meets one of its bounds. Walking over the kinks in order finds the piece that contains
/// `sum`.
pub(super) fn allocate(sum: f64, classes: &[Class]) -> Option<Allocation> {
    let total = |of: fn(&Class) -> f64| classes.iter().map(of).sum::<f64>();
    let (least, most) = (total(|c| c.lower), total(|c| c.upper));
    let valid = |c: &Class| 0.0 <= c.lower && c.lower <= c.target() && c.lower <= c.upper;
    if !classes.iter().all(valid) || least - sum > EPSILON || sum - most > EPSILON {
        return None;
    }
    // With all lower bounds at zero there is no slope to divide by.
    if sum == 0.0 {
        return Some(Allocation {
            allocated: vec![0.0; classes.len()],
            fraction: 0.0,
        });
    }
    let mut kinks: Vec<(f64, f64)> = classes
        .iter()
        .flat_map(|c| {
            let target = c.target();
            // Between its bounds a class contributes its target to the slope, outside of them nothing.
            [(c.lower / target, target), (c.upper / target, -target)]
        })
        .collect();
    kinks.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut reached, mut slope) = (least, 0.0);
    let mut fraction = kinks.first().map_or(0.0, |k| k.0);
    for (kink, change) in kinks {
        let next = reached + slope * (kink - fraction);
        // A flat piece is passed even if it reaches the sum: any fraction on it solves the problem.
        if slope > 0.0 && next >= sum {
            break;
        }
        (reached, fraction) = (next, kink);
        slope += change;
        // The remainder of a slope after all its classes have met their bounds is a rounding error.
        if slope < EPSILON {
            slope = 0.0;
        }
    }
    if slope > 0.0 {
        fraction += (sum - reached) / slope;
    }
    Some(Allocation {
        allocated: classes.iter().map(|c| c.at(fraction)).collect(),
        fraction,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(target: f64, lower: f64, upper: f64) -> Class {
        Class { target, lower, upper }
    }

    #[test]
    fn without_bounds_in_the_way_all_get_the_same_fraction() {
        let found = allocate(60.0, &[class(10.0, 0.0, 99.0), class(20.0, 0.0, 99.0)]).unwrap();
        assert_eq!((found.allocated, found.fraction), (vec![20.0, 40.0], 2.0));
    }

    #[test]
    fn a_bound_leaves_the_rest_to_the_others() {
        let found = allocate(60.0, &[class(10.0, 0.0, 12.0), class(20.0, 0.0, 99.0)]).unwrap();
        assert_eq!((found.allocated, found.fraction), (vec![12.0, 48.0], 2.4));
        let found = allocate(20.0, &[class(30.0, 15.0, 99.0), class(30.0, 0.0, 99.0)]).unwrap();
        assert_eq!(found.allocated, [15.0, 5.0]);
    }

    #[test]
    fn sums_outside_of_the_bounds_are_impossible() {
        let classes = [class(10.0, 5.0, 12.0)];
        assert_eq!(allocate(4.0, &classes), None);
        assert_eq!(allocate(13.0, &classes), None);
        assert_eq!(allocate(5.0, &classes).unwrap().allocated, [5.0]);
        assert_eq!(allocate(12.0, &classes).unwrap().allocated, [12.0]);
    }

    proptest! {
        /// Upstream's definition of the solution, which is unique.
        #[test]
        fn each_gets_the_fraction_of_its_target_or_its_bound(
            parts in proptest::collection::vec((0.0..5.0f64, 0.0..2.0f64, 0.0..3.0f64), 1..9),
            at in 0.0..=1.0f64,
        ) {
            let classes: Vec<Class> = parts.iter().map(|(low, t, u)| class(low + t, *low, low + u)).collect();
            let least: f64 = classes.iter().map(|c| c.lower).sum();
            let most: f64 = classes.iter().map(|c| c.upper).sum();
            let sum = least + (most - least) * at;
            let found = allocate(sum, &classes).unwrap();
            let total: f64 = found.allocated.iter().sum();
            prop_assert!((total - sum).abs() < 1e-6 * sum.max(1.0), "{total} is not {sum}");
            for (c, got) in classes.iter().zip(&found.allocated) {
                prop_assert!((c.at(found.fraction) - got).abs() < 1e-9);
                prop_assert!(c.lower <= *got && *got <= c.upper);
            }
        }
    }
}
