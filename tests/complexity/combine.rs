//! Fields that grow at the same time, to find costs that multiply the lengths of two fields.

use crate::catalogue::Resource;
use crate::growth::Growth;
use crate::growth_check::{check_growth, climb};
use crate::make::{self, Variation};
use crate::plan::{Plan, describe, status_of};
use crate::sites::{Site, Step};
use crate::submissions::{Codec, Submission, Target};
use std::collections::BTreeMap;
use torana::api::Ty;
use torana::apimachinery::Value;
use torana::json;

/// The number of field pairs tried per kind.
const PAIRS: usize = 12;

impl Plan<'_> {
    /// Grows all scalar lists of one object together. If the object is an element of a list, the list holds
    /// three copies, so that a product of the lengths already shows at small lengths.
    pub(crate) fn grow_together(&mut self, resource: &Resource, found: &[Site], base: &Value) {
        let mut groups: BTreeMap<String, Vec<&Site>> = BTreeMap::new();
        for site in found {
            let lists = matches!(site.ty, Ty::List(inner) if inner.struct_def().is_none());
            if lists && matches!(site.path.last(), Some(Step::Field(_))) {
                let parent = Site {
                    path: site.path[..site.path.len() - 1].to_vec(),
                    ..site.clone()
                };
                groups.entry(parent.shown()).or_default().push(site);
            }
        }
        for (parent, group) in groups.into_iter().filter(|(_, g)| g.len() > 1) {
            let server = self.server;
            let counter = std::mem::take(&mut self.counter);
            let subresource = status_of(resource, group[0]);
            let target = Target {
                server,
                resource,
                subresource,
                site: group[0],
                base,
                parent: base,
                counter: &counter,
            };
            let (mut object, _) = self.valid_object(&target);
            for site in &group {
                make::reach(&mut object, resource.def, &site.path);
            }
            // The object that holds the lists or, if it is a list element, the list.
            let (path, repeated) = match group[0].path.as_slice() {
                [path @ .., Step::First, _] => (path.to_vec(), true),
                [path @ .., _] => (path.to_vec(), false),
                [] => continue,
            };
            let holder = Site {
                path,
                ..group[0].clone()
            };
            let target = Target {
                site: &holder,
                base: &object,
                ..target
            };
            let run = |n: usize| {
                let mut whole = make::reach(&mut object.clone(), resource.def, &holder.path).clone();
                let one = if repeated {
                    whole.items().first().cloned().unwrap_or_default()
                } else {
                    whole.clone()
                };
                let mut one = one;
                for site in &group {
                    let list = (0..n).map(|i| json!(format!("a{i}"))).collect();
                    one.set(&[site.field.name], Value::Array(list));
                }
                if repeated {
                    whole = Value::Array(vec![one; 3]);
                } else {
                    whole = one;
                }
                target.run(Submission::Create(Codec::Json), &whole)
            };
            let names: Vec<&str> = group.iter().map(|s| s.field.name).collect();
            if let Some(finding) = climb(&run, 4, 512) {
                let what = describe(
                    resource,
                    subresource,
                    &parent,
                    Submission::Create(Codec::Json),
                    &format!("{names:?} together"),
                );
                self.found(what, &finding);
            }
            self.counter = counter;
        }
    }

    /// Grows random pairs of fields of an object at the same time.
    pub(crate) fn pairs(&mut self, resource: &Resource, found: &[Site], base: &Value, more: &dyn Fn() -> bool) {
        let long: Vec<&Site> = found.iter().filter(|s| s.is_collection()).collect();
        for _ in 0..long.len().min(PAIRS) {
            if !more() {
                return;
            }
            let (a, b) = (long[self.below(long.len())], long[self.below(long.len())]);
            if a.path.starts_with(&b.path) || b.path.starts_with(&a.path) || a.in_status() != b.in_status() {
                continue;
            }
            let server = self.server;
            let counter = std::mem::take(&mut self.counter);
            let subresource = status_of(resource, a);
            let (first, all_b) = self.valid_object(&Target {
                server,
                resource,
                subresource,
                site: b,
                base,
                parent: base,
                counter: &counter,
            });
            let (object, all_a) = self.valid_object(&Target {
                server,
                resource,
                subresource,
                site: a,
                base: &first,
                parent: base,
                counter: &counter,
            });
            let growth = Growth::Distinct(Variation::All);
            let run = |n: usize| {
                let mut base = object.clone();
                *make::reach(&mut base, resource.def, &b.path) = growth.value(b, &all_b, n);
                let target = Target {
                    server,
                    resource,
                    subresource,
                    site: a,
                    base: &base,
                    parent: &base,
                    counter: &counter,
                };
                target.run(Submission::Create(Codec::Json), &growth.value(a, &all_a, n))
            };
            if let Some(finding) = check_growth(&run, growth.lengths(a)) {
                let field = format!("{} and {}", a.shown(), b.shown());
                self.found(
                    describe(
                        resource,
                        subresource,
                        &field,
                        Submission::Create(Codec::Json),
                        &growth.shown(),
                    ),
                    &finding,
                );
            }
            self.counter = counter;
        }
    }
}
