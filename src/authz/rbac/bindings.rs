//! [`Bindings`]: the bindings of one subject in one scope, in the order of their names.
//!
//! Most subjects have one or two, which are stored without a tree. The smallest node of a tree takes a kilobyte, so that
//! a binding of many subjects would occupy twenty times its size in the index.

use super::resolved::BoundSubject;
use crate::apimachinery::value::Str;
use imbl::OrdMap;

/// Number of bindings up to which a change copies all of them.
const FEW: usize = 8;

/// At least one binding.
#[derive(Clone)]
pub(super) enum Bindings {
    Few(Box<[BoundSubject]>),
    Many(OrdMap<Str, BoundSubject>),
}

impl Bindings {
    /// Sets a binding in addition to those of `before`.
    pub(super) fn with(before: Option<&Self>, added: BoundSubject) -> Self {
        let mut few = match before {
            None => Vec::new(),
            Some(Self::Few(few)) => few.to_vec(),
            Some(Self::Many(many)) => return Self::Many(many.update(added.binding.name.clone(), added)),
        };
        match few.binary_search_by(|known| known.binding.name.cmp(&added.binding.name)) {
            Ok(at) => few[at] = added,
            Err(at) => few.insert(at, added),
        }
        if few.len() <= FEW {
            return Self::Few(few.into());
        }
        Self::Many(few.into_iter().map(|b| (b.binding.name.clone(), b)).collect())
    }

    /// The bindings without one of them; `None` if none is left.
    pub(super) fn without(&self, name: &str) -> Option<Self> {
        let left: Box<[BoundSubject]> = match self {
            Self::Few(few) => few
                .iter()
                .filter(|b| b.binding.name.as_str() != name)
                .cloned()
                .collect(),
            Self::Many(many) => {
                let left = many.without(name);
                if left.len() > FEW {
                    return Some(Self::Many(left));
                }
                left.values().cloned().collect()
            }
        };
        (!left.is_empty()).then_some(Self::Few(left))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &BoundSubject> {
        let (few, many) = match self {
            Self::Few(few) => (Some(few.iter()), None),
            Self::Many(many) => (None, Some(many.values())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::rbac::Binding;
    use std::sync::Arc;

    fn bound(name: &str, subject: usize) -> BoundSubject {
        let binding = Binding {
            namespace: "".into(),
            name: name.into(),
            role_kind: "ClusterRole".into(),
            role_name: "r".into(),
            subjects: Vec::new(),
        };
        BoundSubject {
            binding: Arc::new(binding),
            subject,
            role: None,
        }
    }

    #[test]
    fn any_number_of_bindings_is_ordered_by_name() {
        let names: Vec<String> = (0..2 * FEW).map(|i| format!("b{i:02}")).collect();
        let subjects = |bindings: &Option<Bindings>| -> Vec<usize> {
            bindings.iter().flat_map(Bindings::iter).map(|b| b.subject).collect()
        };
        let mut bindings = None;
        for (number, name) in names.iter().enumerate().rev() {
            // The second takes the place of the first.
            for subject in [usize::MAX, number] {
                bindings = Some(Bindings::with(bindings.as_ref(), bound(name, subject)));
            }
            assert_eq!(subjects(&bindings), Vec::from_iter(number..names.len()));
            let few = matches!(bindings, Some(Bindings::Few(_)));
            assert_eq!(few, names.len() - number <= FEW);
        }
        for (number, name) in names.iter().enumerate() {
            bindings = bindings.and_then(|b| b.without("another")?.without(name));
            assert_eq!(subjects(&bindings), Vec::from_iter(number + 1..names.len()));
            let many = matches!(bindings, Some(Bindings::Many(_)));
            assert_eq!(many, names.len() - number - 1 > FEW);
        }
        assert!(bindings.is_none());
    }
}
