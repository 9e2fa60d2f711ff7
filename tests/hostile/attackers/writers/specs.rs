//! Specs with long lists, by kind: comparison, sorting, defaulting and counting of elements.

mod others;
mod pods;

use super::joined;
use crate::attackers::Cases;
use crate::scale::Scale;
use crate::wire::Request;

/// An object with a list in the place of `%`, whose items are generated from their index.
struct Shape {
    name: &'static str,
    path: &'static str,
    object: String,
    item: fn(usize) -> String,
    n: usize,
}

impl Shape {
    /// The path of the object.
    fn location(&self) -> String {
        let name = self
            .object
            .split(r#""name":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        format!("{}/{}", self.path, name.expect("the object has a name"))
    }
}

fn shape(name: &'static str, path: &'static str, object: &str, n: usize, item: fn(usize) -> String) -> Shape {
    Shape {
        name,
        path,
        object: object.to_owned(),
        item,
        n,
    }
}

/// All shapes.
fn shapes() -> impl Iterator<Item = Shape> {
    pods::shapes().into_iter().chain(others::shapes())
}

pub(super) fn all(cases: &mut Cases, scale: &Scale) {
    for s in shapes() {
        let n = scale.size(s.n);
        cases.add(format!("spec: {}", s.name), move |scene| {
            scene.send(&Request::post(s.path, s.object.replacen('%', &joined(n, s.item), 1)));
            scene.delete_afterwards(s.location());
        });
    }
    for s in shapes() {
        if !REORDERED.contains(&s.name) {
            continue;
        }
        let n = scale.size(s.n);
        cases.add(format!("spec: {}, then in another order", s.name), move |scene| {
            scene.send(&Request::post(s.path, s.object.replacen('%', &joined(n, s.item), 1)));
            let backwards = joined(n, |i| (s.item)(n - 1 - i));
            scene.send(&Request::put(s.location(), s.object.replacen('%', &backwards, 1)));
        });
    }
}

/// Shapes that are also updated with their items in another order, which makes validation compare old and new
/// items.
const REORDERED: [&str; 7] = [
    "10,000 containers",
    "20,000 volumes",
    "40,000 variables",
    "40,000 tolerations",
    "a service of 30,000 ports",
    "an ingress of 15,000 hosts",
    "an ingress of 40,000 certificates",
];
