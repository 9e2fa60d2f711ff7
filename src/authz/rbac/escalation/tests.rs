use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Upstream's `ruleCovers`, reimplemented for single grants.
fn covers(held: &PolicyRule, grant: &PolicyRule) -> bool {
    let has = |held: &[Str], wanted: &[Str]| held.iter().any(|h| h == "*") || wanted.iter().all(|w| held.contains(w));
    let resource = |wanted: &Str| {
        let held = &held.resources;
        let in_all = wanted.split_once('/').map(|(_, sub)| Str::from(format!("*/{sub}")));
        held.iter().any(|h| h == "*") || held.contains(wanted) || in_all.is_some_and(|r| held.contains(&r))
    };
    let names = held.resource_names.is_empty()
        || (!grant.resource_names.is_empty() && grant.resource_names.iter().all(|n| held.resource_names.contains(n)));
    has(&held.verbs, &grant.verbs)
        && has(&held.api_groups, &grant.api_groups)
        && grant.resources.iter().all(resource)
        && names
        && grant.non_resource_urls.iter().all(|url| held.has_url(url))
}

/// Upstream's `Covers` and `CompactRules`, restated: every grant is compared with every rule.
fn plainly(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let missing = wanted.iter().flat_map(expand);
    let missing = missing.filter(|grant| !held.iter().any(|rule| covers(rule, grant)));
    let mut out: Vec<PolicyRule> = Vec::new();
    for grant in missing {
        let same = out.iter_mut().find(|o| {
            grant.non_resource_urls.is_empty()
                && o.non_resource_urls.is_empty()
                && (&o.api_groups, &o.resources, &o.resource_names)
                    == (&grant.api_groups, &grant.resources, &grant.resource_names)
        });
        match same {
            Some(o) => o.verbs.extend(grant.verbs),
            None => out.push(grant),
        }
    }
    out
}

fn list(all: &'static [&'static str], sizes: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Str>> {
    prop::collection::vec(prop::sample::select(all), sizes).prop_map(|v| v.into_iter().map(Str::from).collect())
}

fn rule() -> impl Strategy<Value = PolicyRule> {
    let verbs = || list(&["get", "list", "create", "*"], 0..4);
    let resources = (
        verbs(),
        list(&["", "apps", "batch", "*"], 0..4),
        list(&["pods", "pods/log", "nodes/log", "*/log", "nodes", "*"], 0..4),
        list(&["a", "b", ""], 0..3),
    );
    let urls = (verbs(), list(&["/a", "/a/*", "/a/b", "/a/b*", "*", "/**"], 1..3));
    prop_oneof![
        4 => resources.prop_map(|(verbs, api_groups, resources, resource_names)| PolicyRule {
            verbs,
            api_groups,
            resources,
            resource_names,
            non_resource_urls: Vec::new(),
        }),
        1 => urls.prop_map(|(verbs, non_resource_urls)| PolicyRule {
            verbs,
            non_resource_urls,
            ..PolicyRule::default()
        }),
    ]
}

fn sorted(rules: Vec<PolicyRule>) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for rule in rules {
        *out.entry(rule.to_string()).or_default() += 1;
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]
    #[test]
    fn missing_rules_equal_upstreams_algorithm(
        held in prop::collection::vec(rule(), 0..6),
        wanted in prop::collection::vec(rule(), 0..5),
    ) {
        let missing = HeldRules::of(held.iter()).missing(&wanted).unwrap();
        prop_assert!(!missing.more);
        prop_assert_eq!(sorted(missing.rules), sorted(plainly(&held, &wanted)));
        let single: Vec<PolicyRule> =
            wanted.iter().flat_map(expand).filter(|g| !held.iter().any(|rule| covers(rule, g))).collect();
        prop_assert_eq!(HeldRules::of(held.iter()).missing_grants(&wanted), single);
    }
}

fn box_of(sides: usize) -> PolicyRule {
    let all = |letter: char| (0..sides).map(|i| Str::from(format!("{letter}{i}"))).collect();
    PolicyRule {
        verbs: all('v'),
        api_groups: all('g'),
        resources: all('r'),
        ..PolicyRule::default()
    }
}

#[test]
fn rules_of_a_million_grants_are_compared_without_expansion() {
    let wanted = vec![box_of(100), box_of(100), box_of(100)];
    let nothing = HeldRules::of([].iter()).missing(&wanted).unwrap();
    assert!(nothing.more && nothing.rules.len() <= MAX_RULES);
    assert_eq!(
        HeldRules::of(wanted.iter()).missing(&wanted),
        Ok(MissingRules::default())
    );
    // Split by group, so that no held rule covers a wanted one by itself.
    let split: Vec<PolicyRule> = (0..100)
        .map(|i| PolicyRule {
            api_groups: vec![format!("g{i}").into()],
            ..box_of(100)
        })
        .collect();
    assert_eq!(
        HeldRules::of(split.iter()).missing(&wanted),
        Ok(MissingRules::default())
    );
    let lacking = HeldRules::of(split[1..].iter()).missing(&wanted[..1]).unwrap();
    assert_eq!((lacking.rules.len(), lacking.more), (100, false));
    assert!(
        lacking
            .rules
            .iter()
            .all(|r| r.api_groups == ["g0"] && r.verbs.len() == 100)
    );
}

#[test]
fn a_comparison_ends_with_its_budget() {
    // Every value has held rules of its own, so classes are no smaller than lists.
    let part = |i: usize, n: usize, list: &[Str]| -> Vec<Str> {
        let keep = |v: &usize| !(v * 7 + i * n).is_multiple_of(3);
        (0..list.len()).filter(keep).map(|v| list[v].clone()).collect()
    };
    let wanted = [box_of(30)];
    let held: Vec<PolicyRule> = (0..200)
        .map(|i| PolicyRule {
            verbs: part(i, 1, &wanted[0].verbs),
            api_groups: part(i / 3, 1, &wanted[0].api_groups),
            resources: part(i / 9, 1, &wanted[0].resources),
            ..PolicyRule::default()
        })
        .collect();
    let held = HeldRules::of(held.iter());
    assert_eq!(
        held.missing_within(&wanted, &mut StepBudget::new(100)),
        Err(BudgetExhausted)
    );
    assert_eq!(held.missing(&wanted), Ok(MissingRules::default()));
}
