//! Evaluates loops, into which the parser turns macros such as `all` and `map`: one step for each element of a list
//! or entry of a map, until the loop's condition fails.

use super::Machine;
use crate::plan::{Fold, Node};
use crate::value::{Fail, List, Out, Val, error, no_overload};
use std::sync::Arc;
use torana_apimachinery::interrupt::checkpoint;

impl<'a> Machine<'_, 'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Out<'a> {
        let range = self.expr(&fold.range)?;
        // Its error is kept in the slot, and surfaces when the accumulator is read.
        self.locals[fold.accumulator] = self.expr(&fold.init);
        match &range {
            Val::List(list) => {
                for (i, item) in list.iter().enumerate() {
                    // The order of evaluation matters for errors, so elements are converted one by one.
                    let go_on = if fold.var2.is_some() {
                        self.step(fold, Ok(Val::Int(i as i64)), Some(item))?
                    } else {
                        self.step(fold, item, None)?
                    };
                    if !go_on {
                        break;
                    }
                }
            }
            Val::Map(map) => {
                // Entries are collected first: a map of the input converts its values on the way and may fail.
                for (key, value) in map.entries()? {
                    if !self.step(fold, Ok(key), Some(Ok(value)))? {
                        break;
                    }
                }
            }
            Val::Object(..) => {
                for (key, value) in crate::library::object_entries(&range)? {
                    if !self.step(fold, Ok(key), Some(Ok(value)))? {
                        break;
                    }
                }
            }
            other => return not_iterable(other, fold.var2.is_some()),
        }
        self.expr(&fold.result)
    }

    /// One round; false ends the loop.
    fn step(&mut self, fold: &'a Fold, first: Out<'a>, second: Option<Out<'a>>) -> Result<bool, Fail> {
        // A loop may have a million rounds whose cost is one each.
        checkpoint();
        self.locals[fold.var] = first;
        if let (Some(slot), Some(v)) = (fold.var2, second) {
            self.locals[slot] = v;
        }
        match self.expr(&fold.condition) {
            Err(Fail::Cost) => return Err(Fail::Cost),
            Ok(Val::Bool(false)) => return Ok(false),
            _ => {}
        }
        match self.expr(&fold.step) {
            Err(Fail::Cost) => Err(Fail::Cost),
            // An error does not end the loop, as in cel-go: it costs what the other elements do.
            next => {
                self.locals[fold.accumulator] = next;
                Ok(true)
            }
        }
    }

    /// Adds an element to the list of the loop, which nothing else refers to.
    pub(super) fn append(&mut self, slot: usize, element: &'a Node, charge: u64) -> Out<'a> {
        // Errors of the element are looked at last: the accumulator's comes first, and both are charged.
        let element = match self.expr(element) {
            Err(Fail::Cost) => return Err(Fail::Cost),
            element => element,
        };
        self.charge(charge)?;
        // The error of an earlier element comes first.
        // Moved out of its slot, so that the reference count is one and `make_mut` pushes in place.
        match (std::mem::replace(&mut self.locals[slot], Ok(Val::Null))?, element?) {
            (Val::List(List::Shared(mut items)), element) => {
                Arc::make_mut(&mut items).push(element);
                Ok(Val::List(List::Shared(items)))
            }
            _ => no_overload(),
        }
    }
}

/// cel-go's error for a value that a loop cannot go over.
fn not_iterable<'a>(range: &Val<'a>, two_variables: bool) -> Out<'a> {
    match range.go_type() {
        Some(of) if two_variables => error(format!("unsupported comprehension range type: {of}")),
        Some(of) => error(format!("got '{of}', expected iterable type")),
        None => no_overload(),
    }
}
