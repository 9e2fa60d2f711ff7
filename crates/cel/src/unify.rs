//! Unification: binds type parameters to types.
//!
//! The types of nested literals share their parts, and each is as deep as the literal. To check them in time
//! linear in their text, the properties of a part are cached by its address.

use crate::types::Type;
use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Assigns types to type parameters while an expression is checked.
#[derive(Default)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// Earlier bindings of parameters, so that a failed attempt can be undone.
    trail: Vec<(u32, Option<Type>)>,
    /// The parameters whose meaning has changed, in that order.
    changed: Vec<u32>,
    counted: ByAddress<Counted>,
}

/// Cached properties of a composite type.
struct Counted {
    /// Keeps the type alive, so that no other one gets its address.
    _of: Type,
    parts: usize,
    params: Option<Params>,
    /// The number of changes up to which this holds.
    until: Cell<usize>,
}

/// The lowest and the highest of the parameters in a type, and in the types bound to them. Cached properties
/// are outdated once one of them is bound.
type Params = (u32, u32);

fn joined(a: Option<Params>, b: Option<Params>) -> Option<Params> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

fn has(params: Option<Params>, n: u32) -> bool {
    params.is_some_and(|(lowest, highest)| (lowest..=highest).contains(&n))
}

/// Cached properties of composite types, by the address of their parts.
type ByAddress<T> = HashMap<usize, T, BuildHasherDefault<AddressHasher>>;

/// Addresses are spread already, except for their lowest bits.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only addresses are hashed")
    }

    fn write_usize(&mut self, address: usize) {
        // The table takes its position from the lowest bits and a tag from the highest.
        // Multiplying spreads entropy to the high bits; the rotation brings it to the low ones.
        self.0 = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

/// The address of the components of a composite type.
fn address(t: &Type) -> Option<usize> {
    match t {
        Type::List(of) | Type::Optional(of) | Type::Type(of) => Some(Arc::as_ptr(of).addr()),
        Type::Map(of) => Some(Arc::as_ptr(of).addr()),
        _ => None,
    }
}

/// Maximum number of type parameters of an overload.
const PER_OVERLOAD: usize = 2;
/// A type has no more parts than this: those of an expression could double with each of its loops.
pub(crate) const MAX_PARTS: usize = 1000;

impl Unifier {
    /// An unbound parameter.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Param(self.bound.len() as u32 - 1)
    }

    /// Parameters for one use of an overload; returns the first.
    pub(crate) fn reserve(&mut self) -> u32 {
        let first = self.bound.len();
        self.bound.resize(first + PER_OVERLOAD, None);
        first as u32
    }

    /// The type with its parameters replaced by those from `first`.
    pub(crate) fn instance(&self, t: &Type, first: u32) -> Type {
        rebuild(t, &|n| Type::Param(first + n))
    }

    /// The type that a parameter is bound to; other types unchanged.
    pub(crate) fn resolve(&self, t: &Type) -> Type {
        self.resolved(t).clone()
    }

    fn resolved<'t>(&'t self, mut t: &'t Type) -> &'t Type {
        // Chains are short and acyclic: `substitute` binds no parameter to a type that mentions it.
        while let Type::Param(n) = t {
            match &self.bound[*n as usize] {
                Some(next) => t = next,
                None => break,
            }
        }
        t
    }

    /// The type with parameters replaced by their bindings; unbound ones become dyn.
    pub(crate) fn close(&self, t: &Type) -> Type {
        self.closing().close(t)
    }

    /// Closes many types. Nothing may be bound meanwhile.
    pub(crate) fn closing(&self) -> Closing<'_> {
        Closing {
            unifier: self,
            closed: ByAddress::default(),
        }
    }

    /// The number of parts of the type, counted up to the limit.
    pub(crate) fn parts(&mut self, t: &Type) -> usize {
        let (mut left, mut new) = (MAX_PARTS + 1, Vec::new());
        self.count(t, &mut left, &mut new);
        // Added afterwards, because counting borrows the cache.
        self.counted.extend(new);
        MAX_PARTS + 1 - left
    }

    /// Counts down by the number of parts, and returns the parameters among them.
    fn count(&self, t: &Type, left: &mut usize, new: &mut Vec<(usize, Counted)>) -> Option<Params> {
        let before = *left;
        // The limit is exhausted; what follows does not matter for the caller.
        if before == 0 {
            return None;
        }
        let (mut of, mut on_the_way) = (t, None);
        while let Type::Param(n) = of {
            on_the_way = joined(on_the_way, Some((*n, *n)));
            match &self.bound[*n as usize] {
                Some(next) => of = next,
                None => break,
            }
        }
        let inside = if let Some(known) = self.cached(of) {
            // A cached part counts in constant time, however large it is.
            *left = before.saturating_sub(known.parts);
            known.params
        } else {
            *left -= 1;
            let inside = match of {
                Type::List(of) | Type::Optional(of) | Type::Type(of) => self.count(of, left, new),
                Type::Map(of) => {
                    let key = self.count(&of.0, left, new);
                    joined(key, self.count(&of.1, left, new))
                }
                _ => None,
            };
            // A part whose count was cut off is not cached.
            if let Some(address) = address(of)
                && *left > 0
            {
                let counted = Counted {
                    _of: of.clone(),
                    parts: before - *left,
                    params: inside,
                    // Valid as of now: later changes outdate it if they touch its parameters.
                    until: Cell::new(self.changed.len()),
                };
                new.push((address, counted));
            }
            inside
        };
        joined(on_the_way, inside)
    }

    /// The cached properties of the type, unless they are outdated.
    fn cached(&self, t: &Type) -> Option<&Counted> {
        let known = self.counted.get(&address(t)?)?;
        if known.params.is_some() {
            let since = self.changed.get(known.until.get()..).unwrap_or_default();
            if since.iter().any(|n| has(known.params, *n)) {
                return None;
            }
            // Checked up to here; the next lookup only has to look at newer changes.
            known.until.set(self.changed.len());
        }
        Some(known)
    }

    /// True if each type of `from` is acceptable where `to` is wanted; binds parameters.
    pub(crate) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        let all = from.iter().zip(to).all(|(f, t)| self.unify(f, t));
        // Undone in reverse, so that a parameter bound twice gets its oldest value back.
        while !all && self.trail.len() > mark {
            if let Some((n, before)) = self.trail.pop() {
                self.bound[n as usize] = before;
                // Undoing is a change, too: cached properties may have been computed in between.
                self.changed.push(n);
            }
        }
        all
    }

    /// True if the two types can be unified; binds parameters.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn bind(&mut self, n: u32, to: Type) {
        self.changed.push(n);
        let before = self.bound[n as usize].replace(to);
        self.trail.push((n, before));
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(n) = to
            // `None` lets the other side be tried: both may be parameters.
            && let Some(fits) = self.substitute(*n, from)
        {
            return fits;
        }
        if let Type::Param(n) = from {
            return self.substitute(*n, to).unwrap_or(false);
        }
        match (from, to) {
            // The same parts: nothing to compare, which keeps nested literals linear.
            (a, b) if address(a).is_some() && address(a) == address(b) => true,
            (a, b) if a.is_open() || b.is_open() => true,
            // Null is acceptable for wrapper-like types in cel-go; for these that includes library types.
            (Type::Null, Type::Null) => true,
            (Type::Null, other) | (other, Type::Null) => {
                matches!(
                    other,
                    Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp
                )
            }
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0) && self.unify(&a.1, &b.1),
            // Types as values are compared at run time only.
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Whether the parameter can stand for the type; `None` if it stands for nothing and cannot stand for
    /// this.
    fn substitute(&mut self, n: u32, t: &Type) -> Option<bool> {
        if *t == Type::Param(n) {
            return Some(true);
        }
        let Some(before) = self.bound[n as usize].clone() else {
            // The occurs check: a parameter bound to a type that contains it would never resolve.
            if self.mentions(t, n) {
                return None;
            }
            self.bind(n, t.clone());
            return Some(true);
        };
        if *t == before {
            return Some(true);
        }
        if !self.unify(t, &before) {
            return Some(false);
        }
        // The parameter is bound to the more general of two compatible types.
        let general = if self.no_more_specific(t, &before) {
            t.clone()
        } else {
            before
        };
        if !self.mentions(&general, n) {
            self.bind(n, general);
        }
        Some(true)
    }

    /// The more general of two types that go together.
    pub(crate) fn general(&self, a: &Type, b: &Type) -> Type {
        if self.no_more_specific(a, b) {
            a.clone()
        } else {
            b.clone()
        }
    }

    fn no_more_specific(&self, a: &Type, b: &Type) -> bool {
        match (a, b) {
            (Type::Dyn | Type::Any | Type::Param(_), _) => true,
            (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.no_more_specific(a, b),
            (Type::Map(a), Type::Map(b)) => self.no_more_specific(&a.0, &b.0) && self.no_more_specific(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    fn mentions(&self, t: &Type, n: u32) -> bool {
        // Parameters outside of the cached range cannot be in the type.
        if self.cached(t).is_some_and(|known| !has(known.params, n)) {
            return false;
        }
        match t {
            Type::Param(m) if *m == n => true,
            // Follows bindings, since a parameter may stand for a type that mentions the other.
            Type::Param(m) => self.bound[*m as usize].as_ref().is_some_and(|t| self.mentions(t, n)),
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.mentions(of, n),
            Type::Map(of) => self.mentions(&of.0, n) || self.mentions(&of.1, n),
            _ => false,
        }
    }
}

/// Closes types, each part once.
pub(crate) struct Closing<'u> {
    unifier: &'u Unifier,
    /// By the parts of the types that were closed, which the unifier and the caller keep.
    closed: ByAddress<Type>,
}

impl Closing<'_> {
    /// See [`Unifier::close`].
    pub(crate) fn close(&mut self, t: &Type) -> Type {
        let t = self.unifier.resolved(t);
        let Some(address) = address(t) else {
            return match t {
                Type::Param(_) => Type::Dyn,
                other => other.clone(),
            };
        };
        if let Some(known) = self.closed.get(&address) {
            return known.clone();
        }
        let closed = match t {
            Type::List(of) => Type::list(self.close(of)),
            Type::Optional(of) => Type::optional(self.close(of)),
            Type::Type(of) => Type::Type(self.close(of).into()),
            Type::Map(of) => Type::map(self.close(&of.0), self.close(&of.1)),
            other => other.clone(),
        };
        // Keyed by the address of the open type, which the unifier keeps alive.
        self.closed.insert(address, closed.clone());
        closed
    }
}

/// The type with its parameters replaced.
fn rebuild(t: &Type, with: &dyn Fn(u32) -> Type) -> Type {
    match t {
        Type::Param(n) => with(*n),
        Type::List(of) => Type::list(rebuild(of, with)),
        Type::Optional(of) => Type::optional(rebuild(of, with)),
        Type::Type(of) => Type::Type(rebuild(of, with).into()),
        Type::Map(of) => Type::map(rebuild(&of.0, with), rebuild(&of.1, with)),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(core: Type, depth: usize) -> Type {
        (0..depth).fold(core, |of, _| Type::list(of))
    }

    #[test]
    fn parts_are_counted_again_when_a_parameter_changes() {
        let mut unifier = Unifier::default();
        let (first, second) = (unifier.fresh(), unifier.fresh());
        let of_first = nested(first.clone(), 3);
        let both = Type::map(of_first.clone(), Type::list(second.clone()));
        assert_eq!([&of_first, &both].map(|t| unifier.parts(t)), [4, 7]);
        assert!(unifier.assignable(&nested(Type::Int, 10), &second));
        assert_eq!([&of_first, &both].map(|t| unifier.parts(t)), [4, 17]);
        // Through another parameter.
        assert!(unifier.assignable(&Type::list(second), &first));
        assert_eq!([&of_first, &both].map(|t| unifier.parts(t)), [15, 28]);
        // A failed assignment binds no parameters.
        let third = unifier.fresh();
        let wanted = Type::map(third.clone(), Type::Int);
        let found = Type::map(nested(Type::Int, 5), Type::String);
        assert_eq!(unifier.parts(&wanted), 3);
        assert!(!unifier.assignable(&found, &wanted));
        assert_eq!(unifier.parts(&wanted), 3);
        assert!(unifier.assignable(&nested(Type::Int, 5), &third));
        assert_eq!(unifier.parts(&wanted), 8);
    }

    #[test]
    fn parts_are_counted_up_to_the_limit() {
        let mut unifier = Unifier::default();
        let mut t = Type::Int;
        for _ in 0..60 {
            t = Type::map(t.clone(), t);
        }
        assert_eq!(unifier.parts(&t), MAX_PARTS + 1);
        assert_eq!(unifier.parts(&nested(Type::Int, 2 * MAX_PARTS)), MAX_PARTS + 1);
    }

    #[test]
    fn a_parameter_is_not_bound_to_a_type_that_contains_it() {
        let mut unifier = Unifier::default();
        let (a, b) = (unifier.fresh(), unifier.fresh());
        let of_b = nested(b.clone(), 3);
        assert_eq!(unifier.parts(&of_b), 4);
        assert!(unifier.assignable(&of_b, &a));
        assert!(!unifier.assignable(&nested(a.clone(), 2), &b));
        assert_eq!(unifier.close(&Type::map(a.clone(), a)).to_string(), {
            let list = "list(list(list(dyn)))";
            format!("map({list}, {list})")
        });
    }

    #[test]
    fn parts_that_are_shared_stay_shared_in_closed_types() {
        let mut unifier = Unifier::default();
        let inner = nested(unifier.fresh(), 5);
        let outer = Type::list(inner.clone());
        let mut closing = unifier.closing();
        let (Type::List(a), Type::List(b)) = (closing.close(&outer), closing.close(&Type::list(inner))) else {
            unreachable!("lists are closed to lists");
        };
        assert_eq!(address(&a), address(&b));
        assert_eq!(*a, nested(Type::Dyn, 5));
    }
}
