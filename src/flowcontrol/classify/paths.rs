//! [`Paths`]: which policies match the path of a request that is not for a resource.

use super::bits::{Policies, Table, sets_by_word};
use std::ops::Range;

/// The non-resource URLs of a schema. A rule matches its path and, with or without a trailing `*`, everything below it.
pub(super) struct Paths {
    whole: Table,
    /// What has to precede a path below a rule, in byte order.
    stems: Box<[Stem]>,
}

struct Stem {
    text: Box<str>,
    policies: Policies,
    /// Number of the longest other stem with which this one begins.
    parent: Option<usize>,
}

impl Paths {
    /// Collects the policies of each URL.
    pub(super) fn of(urls: Vec<(&str, Range<u32>)>) -> Self {
        let below = urls
            .iter()
            .map(|(url, range)| (url.strip_suffix('*').unwrap_or(url), range.clone()));
        let mut below: Vec<_> = below.collect();
        let mut stems: Vec<Stem> = Vec::new();
        for (text, policies) in sets_by_word(&mut below) {
            // In byte order, a stem follows the stems with which it begins.
            let mut parent = stems.len().checked_sub(1);
            while let Some(number) = parent
                && !text.starts_with(&*stems[number].text)
            {
                parent = stems[number].parent;
            }
            let text = text.into();
            stems.push(Stem { text, policies, parent });
        }
        Self {
            whole: Table::of(urls),
            stems: stems.into(),
        }
    }

    /// Calls `each` with the sets of policies that match. Costs a binary search, and a step per stem that matches.
    pub(super) fn matching<'a>(&'a self, path: &str, mut each: impl FnMut(&'a Policies)) {
        self.whole.get(path).into_iter().for_each(&mut each);
        let after = self.stems.partition_point(|stem| *stem.text <= *path);
        let mut next = after.checked_sub(1);
        let Some(nearest) = next.map(|number| &*self.stems[number].text) else {
            return;
        };
        // All stems with which the path begins are among the nearest one and its parents.
        let equal = nearest.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        while let Some(number) = next {
            let stem = &self.stems[number];
            let length = stem.text.len();
            // Whole path segments only, as `matchPolicyRuleNonResourceURL`: `/healthz*` does not match `/healthzfoo`.
            if length <= equal && (stem.text.ends_with('/') || path.as_bytes().get(length) == Some(&b'/')) {
                each(&stem.policies);
            }
            next = stem.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Upstream's definition.
    fn matches(rule: &str, path: &str) -> bool {
        let stem = rule.strip_suffix('*').unwrap_or(rule);
        let below = path.strip_prefix(stem);
        rule == path || below.is_some_and(|rest| stem.ends_with('/') || rest.starts_with('/'))
    }

    proptest! {
        #[test]
        fn the_stems_find_what_each_rule_matches(
            urls in proptest::collection::vec("(/[ab]{0,2}){0,3}\\*?", 1..30),
            path in "(/[ab]{0,2}){1,4}\\*?",
        ) {
            let numbered = (0u32..).zip(&urls).map(|(number, url)| (url.as_str(), number..number + 1));
            let mut union = [0];
            Paths::of(numbered.collect()).matching(&path, |policies| policies.add_to(&mut union));
            let expected = (0..).zip(&urls).fold(0, |bits, (number, url)| bits | (u64::from(matches(url, &path)) << number));
            prop_assert_eq!(union[0], expected);
        }
    }
}
