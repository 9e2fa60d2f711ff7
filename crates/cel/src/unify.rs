//! Type parameters and what they stand for.

use crate::types::Type;

/// Assigns types to type parameters while an expression is checked.
#[derive(Default)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// What parameters stood for before they were bound, so that a failed attempt can be undone.
    trail: Vec<(usize, Option<Type>)>,
}

/// How many parameters an overload has at most.
const PER_OVERLOAD: usize = 2;
/// A type has no more parts than this: those of an expression could double with each of its loops.
pub(crate) const MAX_PARTS: usize = 1000;

impl Unifier {
    /// A parameter that stands for nothing yet.
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

    /// What a parameter stands for, or else the type itself.
    pub(crate) fn resolve(&self, t: &Type) -> Type {
        let mut t = t;
        while let Type::Param(n) = t {
            match &self.bound[*n as usize] {
                Some(next) => t = next,
                None => break,
            }
        }
        t.clone()
    }

    /// The type without parameters: those that stand for nothing are dyn.
    pub(crate) fn close(&self, t: &Type) -> Type {
        match t {
            Type::Param(_) => match self.resolve(t) {
                Type::Param(_) => Type::Dyn,
                other => self.close(&other),
            },
            Type::List(_) | Type::Map(_) | Type::Optional(_) | Type::Type(_) => {
                rebuild(t, &|n| self.close(&Type::Param(n)))
            }
            other => other.clone(),
        }
    }

    /// The number of parts of the type, counted up to the limit.
    pub(crate) fn parts(&self, t: &Type) -> usize {
        let mut left = MAX_PARTS + 1;
        self.count(t, &mut left);
        MAX_PARTS + 1 - left
    }

    fn count(&self, t: &Type, left: &mut usize) {
        if *left == 0 {
            return;
        }
        *left -= 1;
        match self.resolve(t) {
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.count(&of, left),
            Type::Map(of) => {
                self.count(&of.0, left);
                self.count(&of.1, left);
            }
            _ => {}
        }
    }

    /// True if each type of `from` is acceptable where `to` is wanted; binds parameters.
    pub(crate) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        let all = from.iter().zip(to).all(|(f, t)| self.unify(f, t));
        if !all {
            for (n, before) in self.trail.drain(mark..).rev() {
                self.bound[n] = before;
            }
        }
        all
    }

    /// True if the two types go together; binds parameters.
    pub(crate) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    fn bind(&mut self, n: u32, to: Type) {
        let before = self.bound[n as usize].replace(to);
        self.trail.push((n as usize, before));
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Param(n) = to
            && let Some(fits) = self.substitute(*n, from)
        {
            return fits;
        }
        if let Type::Param(n) = from {
            return self.substitute(*n, to).unwrap_or(false);
        }
        match (from, to) {
            (a, b) if a.is_open() || b.is_open() => true,
            (Type::Null, Type::Null) => true,
            (Type::Null, other) | (other, Type::Null) => {
                matches!(
                    other,
                    Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Duration | Type::Timestamp
                )
            }
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0) && self.unify(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (a, b) => a == b,
        }
    }

    /// Whether the parameter can stand for the type; `None` if it stands for nothing and cannot stand for this.
    fn substitute(&mut self, n: u32, t: &Type) -> Option<bool> {
        if *t == Type::Param(n) {
            return Some(true);
        }
        let Some(before) = self.bound[n as usize].clone() else {
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
        // Of two types that go together, the parameter stands for the more general one.
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
        match t {
            Type::Param(m) if *m == n => true,
            Type::Param(m) => self.bound[*m as usize].as_ref().is_some_and(|t| self.mentions(t, n)),
            Type::List(of) | Type::Optional(of) | Type::Type(of) => self.mentions(of, n),
            Type::Map(of) => self.mentions(&of.0, n) || self.mentions(&of.1, n),
            _ => false,
        }
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
