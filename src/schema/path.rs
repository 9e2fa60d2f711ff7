//! Paths below a base, kept as a list on the stack and rendered only when an error is reported.

use crate::apimachinery::field::FieldPath;

#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    /// The value or schema at which a walk starts.
    Root,
    /// A named member: `.name`.
    Name(&'a str),
    /// A map entry in the spelling of upstream's `field.Path`: `[key]`.
    Key(&'a str),
    /// A map entry in the spelling of upstream's OpenAPI validator: `.key`, with the dot even at the root.
    Entry(&'a str),
    /// An array element: `[i]`.
    Index(usize),
}

/// A location, linked to its parent.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

impl<'a> At<'a> {
    pub(super) const ROOT: At<'static> = At {
        parent: None,
        step: Step::Root,
    };

    pub(super) fn then<'b>(&'b self, step: Step<'b>) -> At<'b>
    where
        'a: 'b,
    {
        At {
            parent: Some(self),
            step,
        }
    }

    pub(super) fn name<'b>(&'b self, name: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        self.then(Step::Name(name))
    }

    pub(super) fn key<'b>(&'b self, key: &'b str) -> At<'b>
    where
        'a: 'b,
    {
        self.then(Step::Key(key))
    }

    pub(super) fn index<'b>(&'b self, i: usize) -> At<'b>
    where
        'a: 'b,
    {
        self.then(Step::Index(i))
    }

    pub(super) fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// The path below `base`.
    pub(super) fn below(&self, base: &FieldPath) -> FieldPath {
        // Built on demand: paths are only needed for errors, and walks visit every value.
        let Some(parent) = self.parent else { return base.clone() };
        let path = parent.below(base);
        match self.step {
            Step::Root => path,
            Step::Name(name) => path.child(name),
            Step::Key(key) => path.key(key),
            // Upstream's validator joins the path with a dot even if it is empty.
            Step::Entry(key) if path.as_str().is_empty() => FieldPath::new(&format!(".{key}")),
            Step::Entry(key) => path.child(key),
            Step::Index(i) => path.index(i),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_rendered_below_their_base() {
        let spec = At::ROOT.name("spec");
        let list = spec.name("list");
        let item = list.index(3);
        let entry = item.then(Step::Entry("a"));
        assert_eq!(entry.below(&FieldPath::default()).as_str(), "spec.list[3].a");
        assert_eq!(item.key("k").below(&FieldPath::new("x")).as_str(), "x.spec.list[3][k]");
        assert_eq!(
            At::ROOT.then(Step::Entry("a")).below(&FieldPath::default()).as_str(),
            ".a"
        );
        assert!(At::ROOT.is_root() && !spec.is_root());
    }
}
